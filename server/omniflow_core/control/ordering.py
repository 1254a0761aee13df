"""The order of a call's tree: what a yield gives waits until every earlier sibling subtree has released or closed.

One `OrderTree` per ordered output of a call (what waits are its events) and one per session-ordered node (what waits are
the starts of its activations, see `gates`). Its nodes are the activations that can still reach the output, or may come to
be: a bucket holds the place of its activation below the anchor's yield from the moment that yield comes. Each keeps a
cursor, the first yield that is not closed. An event of yield k of activation A is released when A is *current* (its
parent's cursor stands on the yield that caused A, up to the root) and A's cursor stands on k; otherwise it is held in
A's slot k. Routes have no order between them: two children of one yield are current together.

    root ── yield 0 ── llm ── yield 0 (sentence 1) ── tts#1   current: its audio is released as it comes
                          └── yield 1 (sentence 2) ── tts#2   held until tts#1 has closed

A count join stands beside the root: it gathers from the whole call, so it has no order with anything.

A yield is closed when it is complete (all its children are registered) and each child is closed; an activation is closed
when it has finished and its cursor has passed its last yield. Closed slots are dropped, so the cost of an event does not
grow with what has finished.
"""

from __future__ import annotations

from typing import Final

from omniflow_core.control.commands import Emit, StartActivation
from omniflow_core.control.windows import Debt

Released = Emit | StartActivation | Debt
"""What a tree lets go, in order: events, starts whose turn has come, and debts to producers of events that were held."""

Freed = list[Released]


class _Slot:
    """A yield at or behind its activation's cursor."""

    __slots__ = ("children", "held", "is_complete", "open_children")

    def __init__(self) -> None:
        self.held: list[tuple[Emit, int, Debt]] = []
        self.children: list[OrderNode] = []
        self.open_children = 0
        self.is_complete = False


class OrderNode:
    """An activation in the tree of one output."""

    __slots__ = ("cursor", "is_current", "parent", "parent_ordinal", "slots", "start", "yield_count")

    def __init__(self, parent: OrderNode | None, parent_ordinal: int, *, is_current: bool) -> None:
        self.parent = parent
        self.parent_ordinal = parent_ordinal
        self.is_current = is_current
        self.cursor = 0
        self.yield_count = -1
        """Number of yields once the activation has finished, -1 before."""
        self.slots: dict[int, _Slot] = {}
        self.start: StartActivation | None = None
        """Given out when the activation becomes current."""

    def slot(self, ordinal: int) -> _Slot:
        found = self.slots.get(ordinal)
        if found is None:
            found = self.slots[ordinal] = _Slot()
        return found


class OrderTree:
    """Holds back what would overtake. Methods append what they release to `out`."""

    __slots__ = ("_roots", "held_bytes", "held_starts", "root")

    def __init__(self) -> None:
        self.root: Final = OrderNode(None, 0, is_current=True)
        self._roots = [self.root]
        self.held_bytes = 0
        self.held_starts = 0

    def add_root(self) -> OrderNode:
        """An activation without an order among the others."""
        root = OrderNode(None, 0, is_current=True)
        self._roots.append(root)
        return root

    def add_child(self, parent: OrderNode, ordinal: int) -> OrderNode:
        """Registers an activation that yield `ordinal` of `parent` started. Before the yield completes."""
        is_current = parent.is_current and parent.cursor == ordinal
        child = OrderNode(parent, ordinal, is_current=is_current)
        slot = parent.slot(ordinal)
        slot.children.append(child)
        slot.open_children += 1
        return child

    def is_next(self, node: OrderNode, ordinal: int) -> bool:
        """An event of the yield would be released at once."""
        return node.is_current and node.cursor == ordinal

    def hold(self, node: OrderNode, ordinal: int, event: Emit, size_bytes: int, debt: Debt) -> None:
        """Keeps an event of a yield whose turn has not come; `debt` is released after it."""
        node.slot(ordinal).held.append((event, size_bytes, debt))
        self.held_bytes += size_bytes

    def hold_start(self, node: OrderNode, start: StartActivation, out: Freed) -> None:
        """Releases or keeps the start of the node's own activation."""
        if node.is_current:
            out.append(start)
        else:
            node.start = start
            self.held_starts += 1

    def complete_yield(self, node: OrderNode, ordinal: int, out: Freed) -> None:
        """All children and events of the yield are known."""
        if node.cursor == ordinal and ordinal not in node.slots:
            node.cursor += 1  # the common case of a stream of tokens: nothing held, no children
            if node.slots or node.yield_count == node.cursor:
                self._advance(node, out)
            return
        node.slot(ordinal).is_complete = True
        self._advance(node, out)

    def finish(self, node: OrderNode, yield_count: int, out: Freed) -> None:
        """The activation will not yield again."""
        node.yield_count = yield_count
        self._advance(node, out)

    def _advance(self, start: OrderNode, out: Freed) -> None:
        """Moves cursors as far as they go, from `start` upwards; loops instead of recursing, as trees can be deep."""
        pending = [start]
        while pending:
            node = pending.pop()
            if not node.is_current:
                continue
            self._move_cursor(node, pending, out)
            if node.cursor == node.yield_count and node.parent is not None:
                self._close(node, pending)

    def _move_cursor(self, node: OrderNode, pending: list[OrderNode], out: Freed) -> None:
        """Releases the slot under the cursor; passes it when it is closed, else wakes its children."""
        while (slot := node.slots.get(node.cursor)) is not None:
            for event, size_bytes, debt in slot.held:
                out.append(event)
                self.held_bytes -= size_bytes
                if not debt.is_paid:
                    out.append(debt)
            slot.held.clear()
            if slot.is_complete and not slot.open_children:
                del node.slots[node.cursor]
                node.cursor += 1
                continue
            for child in slot.children:
                if not child.is_current:
                    child.is_current = True
                    if child.start is not None:
                        out.append(child.start)
                        child.start = None
                        self.held_starts -= 1
                    pending.append(child)
            return

    def _close(self, node: OrderNode, pending: list[OrderNode]) -> None:
        parent = node.parent
        assert parent is not None, "the root is never closed into a parent"
        node.parent = None
        slot = parent.slots[node.parent_ordinal]
        slot.children.remove(node)
        slot.open_children -= 1
        if not slot.open_children:
            pending.append(parent)

    # --- what the next start waits for ----------------------------------------------------------------------------

    def next_start(self) -> OrderNode | None:
        """The node whose start is held and comes first; None when none is held."""
        frontier = list(self._roots) if self.held_starts else []
        while frontier:
            node = frontier.pop()
            if node.start is not None:
                return node
            for ordinal in sorted(node.slots, reverse=True):
                frontier.extend(reversed(node.slots[ordinal].children))
        return None

    def stands_before(self, node: OrderNode, other: OrderNode) -> bool:
        """The node's activation must have ended before the other one's turn comes."""
        slot_of: dict[OrderNode, int] = {}
        below = other
        while below.parent is not None:
            slot_of[below.parent] = below.parent_ordinal
            below = below.parent
        while node.parent is not None and node not in slot_of:
            if node.parent in slot_of:
                return node.parent_ordinal < slot_of[node.parent]
            node = node.parent
        return False

    def check_integrity(self) -> None:
        """Recomputes what is held. For tests, after every step."""
        held = starts = 0
        frontier = list(self._roots)
        while frontier:
            node = frontier.pop()
            starts += node.start is not None
            assert not (node.is_current and node.start is not None), "a start whose turn has come is kept"
            for ordinal, slot in node.slots.items():
                assert ordinal >= node.cursor, "a slot before the cursor was kept"
                assert slot.open_children == len(slot.children), "open children are miscounted"
                assert not (node.is_current and ordinal == node.cursor and slot.held), "a free event is held"
                held += sum(size for _, size, _ in slot.held)
                frontier.extend(slot.children)
        assert held == self.held_bytes, f"held_bytes is {self.held_bytes}, recomputed {held}"
        assert starts == self.held_starts, f"{self.held_starts} starts are held, recomputed {starts}"
