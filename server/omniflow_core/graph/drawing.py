"""A plan as an SVG drawing: boxes in columns, from the call on the left to its outputs on the right.

Each input group is a row of its node's box with a mark where its edges end: a dot for a single source, a diamond for a
prefix join with its anchor's name, a square for a count join. An anchor says what it is the anchor of. Back edges run
dashed below the boxes. Boxes have fills of their own and lines are of a middle grey, so that the drawing reads on a light
and on a dark page; it needs no script and no font of its own.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from omniflow_core.graph.explain import describe_chunks, describe_node, describe_trigger
from omniflow_core.graph.layering import Layout, Size, arrange
from omniflow_core.graph.plan import GraphPlan, GroupPlan, JoinKind

MAX_NODES = 400
"""Larger graphs are not drawn: nobody can read them, and the drawing outgrows a message."""

_MARGIN = 24.0
_PADDING = 10.0
_LINE = 16.0
_CHARACTER = 6.7
"""Mean width of a character of 11 px; names that are wider are cut."""
_LONGEST = 44
_LANE = 16.0
"""Distance between back edges below the boxes."""
_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot carry, not even escaped."""

_ARROW = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" fill="#7d8b99"/></marker>'
)
_STYLE = """
text { font: 11px ui-sans-serif, system-ui, sans-serif; fill: #1c2733; }
.box { fill: #eef3f8; stroke: #5d7286; }
.role .box { fill: #e6f0e4; stroke: #5c7f56; }
.end .box { fill: #f4efe4; stroke: #8a7a55; }
.name { font-weight: 600; font-size: 12px; }
.note { fill: #52616f; }
.anchor { fill: #2a5db0; }
.edge { fill: none; stroke: #7d8b99; stroke-width: 1.4; }
.back { stroke-dasharray: 5 4; }
.label { font-size: 9px; fill: #7d8b99; }
.single { fill: #7d8b99; }
.prefix { fill: #2a5db0; }
.count { fill: #b4591f; }
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A line of a box. `mark` says where edges end, for rows that take some."""

    text: str
    style: str = ""
    mark: str = ""


@dataclass(slots=True, kw_only=True)
class _Box:
    """The call, a node, or the outputs."""

    title: str
    style: str
    attribute: str
    rows: list[_Row] = field(default_factory=list)
    tip: str = ""

    @property
    def size(self) -> Size:
        longest = max([1.1 * len(_cut(self.title)), *(len(_cut(row.text)) + 2 * bool(row.mark) for row in self.rows)])
        return Size(width=longest * _CHARACTER + 2 * _PADDING, height=_LINE * (1 + len(self.rows)) + 1.4 * _PADDING)

    def row_y(self, row: int) -> float:
        """Middle of a row below the box's upper edge; row -1 is the title."""
        return 0.7 * _PADDING + _LINE * (row + 1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """From a box to a row of another one."""

    source: int
    target: int
    row: int
    fields: tuple[str, ...]


def draw(plan: GraphPlan) -> str:
    """The drawing as a whole SVG document. Graphs of more than `MAX_NODES` nodes give an empty text."""
    if len(plan.nodes) > MAX_NODES:
        return ""
    boxes = _boxes(plan)
    edges = _edges(plan, boxes)
    layout = arrange([box.size for box in boxes], [(edge.source, edge.target) for edge in edges])
    lanes = sum((edge.source, edge.target) in layout.back_edges for edge in edges)
    width = layout.width + 2 * _MARGIN + (2 * _MARGIN if lanes else 0)
    height = layout.height + 2 * _MARGIN + (lanes + 1) * _LANE * bool(lanes)
    left = _MARGIN + (_MARGIN if lanes else 0)
    view = f"{-left:.0f} {-_MARGIN:.0f} {width:.0f} {height:.0f}"
    places = zip(boxes, layout.places, strict=True)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="{view}" role="img">',
        f"<title>{_text(plan.spec.name)}</title>",
        f"<style>{_STYLE}</style>",
        f"<defs>{_ARROW}</defs>",
        *_drawn_edges(edges, boxes, layout),
        *(line for box, place in places for line in _drawn_box(box, place.x, place.y)),
        "</svg>",
    ]
    return "\n".join(lines)


# --- what is drawn --------------------------------------------------------------------------------------------------


def _boxes(plan: GraphPlan) -> list[_Box]:
    """The call, the nodes, the outputs."""
    spec = plan.spec
    call = _Box(title="call", style="end", attribute="", tip="inputs of the call")
    for placeholder in spec.placeholders:
        marks = [placeholder.field.type.lower()]
        marks += ["optional"] if placeholder.field.is_optional else []
        marks += ["streaming"] if placeholder.is_streaming else []
        call.rows.append(_Row(text=f"{placeholder.field.name}: {', '.join(marks)}", style="note"))
    groups: dict[str, list[GroupPlan]] = defaultdict(list)
    anchored: dict[str, list[str]] = defaultdict(list)
    for group in plan.groups:
        groups[group.node].append(group)
        if group.kind is JoinKind.PREFIX:
            anchored[group.anchor].append(f"{group.node}.{group.group}")
    call.rows += [_Row(text=f"anchor of {name}", style="anchor") for name in anchored[""]]
    boxes = [call]
    for node in spec.nodes:
        marks = describe_node(node)
        box = _Box(
            title=node.name,
            style="inline" if node.is_inline else "role",
            attribute=f' data-node="{_text(node.name)}"',
            tip=f"{node.interface} ({', '.join(marks)})",
        )
        box.rows = [_Row(text=node.interface, style="note"), _Row(text=", ".join(marks), style="note")]
        box.rows += [_row_of(group) for group in groups[node.name]]
        box.rows += [_Row(text=describe_trigger(trigger), style="note") for trigger in node.activate_by_count]
        box.rows += [_Row(text=f"anchor of {name}", style="anchor") for name in anchored[node.name]]
        boxes.append(box)
    outputs = _Box(title="outputs", style="end", attribute="", tip="outputs of the call")
    for output in spec.outputs:
        order = ", unordered" if output.is_unordered else ""
        text = f"{output.field.name}: {output.field.type.lower()}{order}"
        outputs.rows.append(_Row(text=text, style="note", mark="single"))
    return [*boxes, outputs]


def _row_of(group: GroupPlan) -> _Row:
    chunks = f", {describe_chunks(group.chunks)}" if group.chunks else ""
    match group.kind:
        case JoinKind.SINGLE:
            return _Row(text=f"{group.group}{chunks}", mark="single")
        case JoinKind.PREFIX:
            return _Row(text=f"{group.group}: join below {group.anchor or 'the call'}", mark="prefix")
        case JoinKind.COUNT:
            return _Row(text=f"{group.group}: count join", mark="count")


def _edges(plan: GraphPlan, boxes: Sequence[_Box]) -> list[_Edge]:
    """One per source and row, whatever the number of its fields."""
    indices = {node.name: i + 1 for i, node in enumerate(plan.spec.nodes)}
    rows: dict[tuple[str, str], int] = {}
    for name, index in indices.items():
        first = next((row for row, shown in enumerate(boxes[index].rows) if shown.mark), 0)
        own = [group.group for group in plan.groups if group.node == name]
        rows |= {(name, group): first + i for i, group in enumerate(own)}
    outputs = {output.field.name: i for i, output in enumerate(plan.spec.outputs)}
    fields: dict[tuple[int, int, int], list[str]] = defaultdict(list)
    for edge in plan.spec.edges:
        is_output = not edge.target_node
        target = len(boxes) - 1 if is_output else indices[edge.target_node]
        row = outputs[edge.target_field] if is_output else rows[edge.target_node, edge.target_group]
        same = edge.source_field == edge.target_field
        shown = edge.source_field if same else f"{edge.source_field} → {edge.target_field}"
        fields[indices.get(edge.source_node, 0), target, row].append(shown)
    return [_Edge(source=s, target=t, row=r, fields=tuple(names)) for (s, t, r), names in fields.items()]


# --- how it is drawn --------------------------------------------------------------------------------------------------


def _drawn_box(box: _Box, x: float, y: float) -> Iterator[str]:
    size = box.size
    yield f'<g class="node {box.style}"{box.attribute} transform="translate({x:.1f},{y:.1f})">'
    yield f"<title>{_text(f'{box.title}: {box.tip}')}</title>"
    yield f'<rect class="box" width="{size.width:.1f}" height="{size.height:.1f}" rx="5"/>'
    yield f'<text class="name" x="{_PADDING}" y="{box.row_y(-1) + 4:.1f}">{_text(_cut(box.title))}</text>'
    for index, row in enumerate(box.rows):
        middle = box.row_y(index)
        if row.mark:
            yield _mark(row.mark, middle)
        indent = _PADDING + (4 if row.mark else 0)
        style = f' class="{row.style}"' if row.style else ""
        yield f'<text{style} x="{indent}" y="{middle + 4:.1f}">{_text(_cut(row.text))}</text>'
    yield "</g>"


def _mark(kind: str, y: float) -> str:
    """Where the edges of a row end, on the left edge of its box."""
    if kind == "single":
        return f'<circle class="single" cx="0" cy="{y:.1f}" r="3"/>'
    turn = ' transform="rotate(45)"' if kind == "prefix" else ""
    return f'<g transform="translate(0,{y:.1f})"><rect class="{kind}" x="-4" y="-4" width="8" height="8"{turn}/></g>'


def _drawn_edges(edges: Sequence[_Edge], boxes: Sequence[_Box], layout: Layout) -> Iterator[str]:
    lane = layout.height + _LANE
    for edge in edges:
        source, target = layout.places[edge.source], layout.places[edge.target]
        start = (source.x + boxes[edge.source].size.width, source.y + boxes[edge.source].row_y(-1))
        end = (target.x - 5, target.y + boxes[edge.target].row_y(edge.row))
        is_back = (edge.source, edge.target) in layout.back_edges
        if is_back:
            path, label = _round_path(start, end, lane)
            lane += _LANE
        else:
            path, label = _path(start, end, layout.bends[edge.source, edge.target])
        names = ", ".join(edge.fields)
        style = "edge back" if is_back else "edge"
        tip = f"{boxes[edge.source].title} to {boxes[edge.target].title}: {names}"
        yield f'<path class="{style}" d="{path}" marker-end="url(#arrow)"><title>{_text(tip)}</title></path>'
        if edge.target == len(boxes) - 1:
            continue  # the row says which output it is
        x, y = label
        yield f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{_text(_cut(names, 18))}</text>'


_Point = tuple[float, float]


def _path(start: _Point, end: _Point, bends: Sequence[tuple[float, float, float]]) -> tuple[str, _Point]:
    """A curve through the bends, and where its label goes: in the gap before the target."""
    path = [f"M{start[0]:.1f},{start[1]:.1f}"]
    x, y = start
    for left, right, bend_y in bends:
        path.append(_curve(x, y, left, bend_y))
        path.append(f"L{right:.1f},{bend_y:.1f}")
        x, y = right, bend_y
    path.append(_curve(x, y, *end))
    return " ".join(path), ((x + end[0]) / 2, (y + end[1]) / 2 - 4)


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (x + to_x) / 2
    return f"C{middle:.1f},{y:.1f} {middle:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}"


def _round_path(start: _Point, end: _Point, lane: float) -> tuple[str, _Point]:
    """A curve below all boxes, from the right of one to the left of another."""
    (x, y), (to_x, to_y) = start, end
    out = 1.6 * _MARGIN
    path = (
        f"M{x:.1f},{y:.1f} C{x + out:.1f},{y:.1f} {x + out:.1f},{lane:.1f} {x:.1f},{lane:.1f} "
        f"L{to_x:.1f},{lane:.1f} C{to_x - out:.1f},{lane:.1f} {to_x - out:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}"
    )
    return path, ((x + to_x) / 2, lane - 4)


def _cut(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _text(text: str) -> str:
    """Text as XML carries it, in elements and in attributes."""
    return html.escape(_INVALID.sub("�", text))
