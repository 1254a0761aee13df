"""What one yield does: hands its fields to every output and input group that it feeds, and opens the buckets below it.

    emissions        to the outputs' order trees, or straight out
    single sources   one activation each; a yield without the group's fields is skipped
    chunks           into the buffers of the producer's activation
    prefix joins     into the bucket below the anchor's yield
    count joins      into the call's one bucket of the node, all facets before any is looked at

Everything is registered before the yield lets its own leases go, so no bucket closes too early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omniflow_core.control.chunk_feeds import ChunkFeeds
from omniflow_core.control.commands import Emit, Facet
from omniflow_core.control.count_joins import CountJoins
from omniflow_core.control.events import Value
from omniflow_core.control.failures import CallFailure, output_full, partial_yield
from omniflow_core.control.joins import PrefixJoins
from omniflow_core.control.leases import LeaseRoot
from omniflow_core.control.paths import Path
from omniflow_core.control.windows import Debt
from omniflow_core.control.work import CallWork
from omniflow_core.control.work_items import Activation, GivenYield
from omniflow_core.graph.routing import Delivery, Emission, GraphPlan, JoinKind, JoinPlan, NodePlan, PipelinePlan
from omniflow_core.graph.spec import OnImpossible


class YieldDelivery:
    """Hands yields on."""

    __slots__ = ("_chunks", "_counts", "_joins", "_source_joins", "_work")

    def __init__(
        self, plan: GraphPlan, work: CallWork, joins: PrefixJoins, counts: CountJoins, chunks: ChunkFeeds
    ) -> None:
        self._work = work
        self._joins = joins
        self._counts = counts
        self._chunks = chunks
        self._source_joins: dict[str, tuple[JoinPlan, ...]] = {}
        for port in {join.port for join in plan.source.anchors if join.port is not None}:
            self._source_joins[port] = tuple(join for join in plan.source.anchors if join.port == port)

    def deliver(
        self,
        producer: Activation,
        fields: Mapping[str, Value],
        size_bytes: int,
        stored_bytes: int,
        port: str | None = None,
    ) -> None:
        """Takes the producer's next yield. For one of the call, `port` is its streaming placeholder, or empty."""
        work = self._work
        node = producer.node
        ordinal = producer.window.next_ordinal
        ordinals = (*producer.origin_path, ordinal)
        waits = 0
        for emission in node.emissions:
            if emission.source_field in fields:
                waits += self._emit(emission, producer, ordinal, ordinals, fields[emission.source_field], size_bytes)
        work.flush()
        touched: list[NodePlan] = []
        opened: Sequence[LeaseRoot] = ()
        if node.deliveries:
            path = Path(producer.origin, node.index, producer.group, producer.activation_id, ordinal)
            anchored = node.anchors if port is None else self._source_joins.get(port, ())
            scopes, opened = self._joins.open(producer, anchored, path, ordinal)
            given = GivenYield(producer, path, ordinals, fields, scopes, size_bytes)
            for index, delivery in enumerate(node.deliveries):
                if delivery.kind is JoinKind.SINGLE:
                    waits += self._single(index, delivery, given)
                elif delivery.kind is JoinKind.PREFIX:
                    waits += self._joins.contribute(delivery, given)
                elif self._counts.admit(delivery, given) and delivery.node not in touched:
                    touched.append(delivery.node)
        for tree, place in producer.order_nodes.items():
            work.trees[tree].complete_yield(place, ordinal, work.freed)
        ack = producer.window.register(waits, size_bytes + stored_bytes)
        work.flush()
        if ack is not None and port is None:
            work.acknowledge(producer, ack)
        for counted in touched:
            self._counts.fire(counted)
        self._joins.opened(opened)

    def give_out(
        self,
        producer: Activation,
        pipeline: PipelinePlan,
        fields: Mapping[str, Value],
        ordinals: tuple[int, ...],
        size_bytes: int,
    ) -> None:
        """Takes the next yield of the last node of the pipeline that the producer began.

        They come in order, and nothing else gives to those outputs, so none waits in an order tree.
        """
        work = self._work
        name = pipeline.nodes[-1].name
        for field, output in pipeline.exits:
            if field in fields:
                work.out.append(Emit(output, name, ordinals, fields[field]))
        ordinal = producer.window.next_ordinal
        for tree, place in producer.order_nodes.items():
            work.trees[tree].complete_yield(place, ordinal, work.freed)
        ack = producer.window.register(0, size_bytes)
        if ack is not None:
            work.acknowledge(producer, ack)

    def _emit(
        self,
        emission: Emission,
        producer: Activation,
        ordinal: int,
        ordinals: tuple[int, ...],
        value: Value,
        size_bytes: int,
    ) -> int:
        """Gives an event out, or holds it in order. Returns 1 when its producer must wait until it is let go."""
        work = self._work
        event = Emit(emission.output, producer.node.name, ordinals, value)
        if emission.order < 0:
            work.freed.append(event)
            return 0
        tree = work.trees[emission.order]
        place = producer.order_nodes[emission.order]
        if tree.is_next(place, ordinal):
            work.freed.append(event)
            return 0
        if tree.held_bytes + size_bytes > work.room.hard_limit_bytes:
            raise CallFailure(output_full(emission.output, work.room.limit_bytes))
        debt = Debt(producer, ordinal, emission.order)
        tree.hold(place, ordinal, event, size_bytes, debt)
        return work.room.owe_held(debt)

    def _single(self, index: int, delivery: Delivery, given: GivenYield) -> int:
        """Starts an activation or fills a chunk. Returns how many acceptances the yield waits for."""
        fields = given.fields
        present: dict[str, tuple[Value, ...]] = {}
        for route in delivery.routes:
            if route.source in fields:
                value = fields[route.source]
                present[route.target] = (*present[route.target], value) if route.target in present else (value,)
        if not present:
            return 0  # skipped
        if not delivery.required <= present.keys():
            spec = delivery.node.spec
            if spec is not None and spec.on_impossible is OnImpossible.FAIL:
                raise CallFailure(partial_yield(delivery, delivery.required - present.keys(), given.ordinals))
            return 0
        if delivery.chunks is not None:
            return self._chunks.add(index, delivery, given)
        facet = Facet(delivery.group, present)
        return self._work.start_below(given, delivery.node, delivery.group_index, facet)
