"""What is accounted for in a call: activations that run, and reservations of those that may still come to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from omniflow_core.control.commands import StartActivation
from omniflow_core.control.events import Value
from omniflow_core.control.leases import Holder, LeaseRoot
from omniflow_core.control.ordering import OrderNode
from omniflow_core.control.paths import Path
from omniflow_core.control.windows import YieldWindow
from omniflow_core.graph.routing import NodePlan, SegmentPlan

if TYPE_CHECKING:
    from omniflow_core.control.chunk_feeds import ChunkFeed

Scopes = Mapping[int, LeaseRoot]
"""By index of a prefix join: the bucket of it that work at this place may contribute to."""

NO_SCOPES: Scopes = {}

_InnerKey = tuple[str, str, int, int]
"""Node, input group, and the last token of the path: activation and yield."""


class GivenYield:
    """One yield on its way to its receivers."""

    __slots__ = ("fields", "ordinals", "path", "producer", "scopes", "size_bytes")

    def __init__(
        self,
        producer: Activation,
        path: Path,
        ordinals: tuple[int, ...],
        fields: Mapping[str, Value],
        scopes: Scopes,
        size_bytes: int,
    ) -> None:
        self.producer = producer
        self.path = path
        self.ordinals = ordinals
        """Of the path, outermost first."""
        self.fields = fields
        """Those that are not skipped."""
        self.scopes = scopes
        """Buckets that what follows from it may contribute to, those included that it opens."""
        self.size_bytes = size_bytes


class HostedSegment:
    """A segment that a replica iterates by itself, from the acceptance of its entry on.

    What its yields start inside is registered here and never commanded. The replica starts the same, for the same reasons,
    and says by what it is known to both: node, input group and the last token of its path.
    """

    __slots__ = ("_unreported", "plan")

    def __init__(self, plan: SegmentPlan) -> None:
        self.plan = plan
        self._unreported: dict[_InnerKey, int] = {}

    def expect(self, activation_id: int, node: str, group: str, origin: Path) -> None:
        """An activation was registered, which the replica starts too."""
        self._unreported[node, group, origin.activation_id, origin.ordinal] = activation_id

    def take(self, node: str, group: str, parent_id: int, parent_ordinal: int) -> int | None:
        """The activation that the replica says it has started; None when nothing has asked for it."""
        return self._unreported.pop((node, group, parent_id, parent_ordinal), None)

    def forget_unreported(self) -> tuple[int, ...]:
        """Activations that the replica has not spoken of, and now will not."""
        left = tuple(self._unreported.values())
        self._unreported.clear()
        return left


class Reservation:
    """Place and leases of an activation that may still come to be: of an open bucket, or of a chunk that may be flushed."""

    __slots__ = ("holder", "hosted", "order_nodes", "scopes")

    def __init__(
        self, holder: Holder, order_nodes: dict[int, OrderNode], scopes: Scopes, hosted: HostedSegment | None = None
    ) -> None:
        self.holder = holder
        self.order_nodes = order_nodes
        self.scopes = scopes
        self.hosted = hosted
        """The run of a segment that the activation will belong to."""


class Activation:
    """One execution that has not ended. The call's source is one too, with id 0."""

    __slots__ = (
        "activation_id",
        "attempt",
        "caused_by",
        "caused_ordinal",
        "charge_bytes",
        "delivered",
        "digests",
        "feeds",
        "group",
        "hosted",
        "is_accepted",
        "is_held",
        "is_sent",
        "node",
        "order_nodes",
        "origin",
        "origin_path",
        "repeated",
        "scopes",
        "start",
        "virtual_yields",
        "window",
    )

    def __init__(
        self,
        activation_id: int,
        node: NodePlan,
        group: int,
        origin: Path | None,
        origin_path: tuple[int, ...],
        order_nodes: dict[int, OrderNode],
        scopes: Scopes,
        window: YieldWindow,
    ) -> None:
        self.activation_id = activation_id
        self.node = node
        self.group = group
        self.origin = origin
        self.origin_path = origin_path
        self.order_nodes = order_nodes
        self.scopes = scopes
        self.window = window
        self.caused_by: Activation | None = None
        """Whose yield counts as delivered when this is accepted."""
        self.caused_ordinal = 0
        self.charge_bytes = 0
        """Bytes of its inputs that are kept in the call's stores until it is accepted."""
        self.is_accepted = False
        self.is_sent = False
        """It was commanded, and no replica has accepted it."""
        self.is_held = False
        """It waits for its turn at a gate; nobody outside knows of it."""
        self.start: StartActivation | None = None
        """Its start, while it may have to be given again."""
        self.attempt = 1
        self.repeated = 0
        """Yields of an earlier attempt that a deterministic one repeats: the next one to compare is at `window`'s end."""
        self.digests: list[bytes] | None = None
        self.delivered: list[Mapping[str, Value]] | None = None
        self.feeds: dict[int, ChunkFeed] | None = None
        """Chunks that are being filled, by index of the delivery."""
        self.hosted: HostedSegment | None = None
        """The run of a segment that it belongs to: its replica starts what it causes inside."""
        self.virtual_yields = 0
        """Places after the last yield that were given to starts without a yield."""
