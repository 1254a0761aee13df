"""Feeds chunks of a stream to their consumers.

The latest yield of a buffer may turn out to be the last of a flushed chunk, so place and leases of the consumer are reserved
below it until the next one comes. A yield that completes a chunk is delivered when the consumer's replica has accepted.
"""

from __future__ import annotations

from omniflow_core.control.chunks import Chunk, ChunkBuffer, ChunkYield
from omniflow_core.control.commands import Facet
from omniflow_core.control.joins import PrefixJoins
from omniflow_core.control.paths import Path
from omniflow_core.control.work import CallWork
from omniflow_core.control.work_items import Activation, GivenYield, Reservation
from omniflow_core.graph.routing import Delivery


class ChunkFeed:
    """Chunks of one producer's activation for one input group."""

    __slots__ = ("buffer", "pending")

    def __init__(self, buffer: ChunkBuffer) -> None:
        self.buffer = buffer
        self.pending: Reservation | None = None
        """For a flushed chunk that would end with the latest yield."""


class ChunkFeeds:
    """Chunk policies of one call."""

    __slots__ = ("_joins", "_work")

    def __init__(self, work: CallWork, joins: PrefixJoins) -> None:
        self._work = work
        self._joins = joins

    def add(self, index: int, delivery: Delivery, given: GivenYield) -> int:
        """Takes a yield in that carries all required fields. Returns how many acceptances it waits for."""
        work, producer, ordinal = self._work, given.producer, given.path.ordinal
        assert delivery.chunks is not None
        if producer.feeds is None:
            producer.feeds = {}
        feed = producer.feeds.get(index)
        if feed is None:
            feed = producer.feeds[index] = ChunkFeed(ChunkBuffer(delivery.chunks))
        buffer = feed.buffer
        reservation = work.reserve(delivery.node, producer, ordinal, given.scopes)
        before = buffer.size_bytes
        chunk = buffer.add(ChunkYield(given.path, given.ordinals, given.fields, given.size_bytes))
        work.room.total_bytes += buffer.size_bytes - before
        if feed.pending is not None:
            work.drop(feed.pending)
            feed.pending = None
        if chunk is not None:
            activation = self._start(delivery, chunk, reservation)
            if activation.is_held:
                return work.room.owe(given)
            activation.caused_by = producer
            activation.caused_ordinal = ordinal
            return 1
        feed.pending = reservation
        work.room.check(delivery.node.name, delivery.group, buffer.size_bytes)
        return 0

    def close(self, producer: Activation) -> None:
        """The producer has ended: gives the rest, and goes on without the fields where the policy says so."""
        feeds = producer.feeds
        if feeds is None:
            return
        producer.feeds = None
        for index, feed in feeds.items():
            self._flush(producer.node.deliveries[index], feed)
        going_on = [d for d in map(producer.node.deliveries.__getitem__, feeds) if d.chunks and d.chunks.continues]
        if going_on:  # some chunk was given: a stream that carried nothing is skipped, not drained
            self._go_on(going_on, producer)

    def close_inputs(self, source: Activation, open_inputs: frozenset[str]) -> None:
        """Inputs of the call have ended: gives the rest of the chunks that they feed, though others may still come."""
        for index, feed in (source.feeds or {}).items():
            delivery = source.node.deliveries[index]
            if not any(route.source in open_inputs for route in delivery.routes):
                self._flush(delivery, feed)

    def _flush(self, delivery: Delivery, feed: ChunkFeed) -> None:
        pending, feed.pending = feed.pending, None
        self._work.room.total_bytes -= feed.buffer.size_bytes
        chunk = feed.buffer.close()
        if pending is not None:
            if chunk is not None:
                self._start(delivery, chunk, pending)
            else:
                self._work.drop(pending)
                self._work.flush()

    def _start(self, delivery: Delivery, chunk: Chunk, reservation: Reservation) -> Activation:
        facet = chunk.facet(delivery.group, delivery.routes)
        last = chunk.yields[-1].path
        size_bytes = sum(y.size_bytes for y in chunk.yields)
        return self._work.start_reserved(reservation, last, delivery.node, delivery.group_index, (facet,), size_bytes)

    def _go_on(self, deliveries: list[Delivery], producer: Activation) -> None:
        """Starts the consumers once more, without the fields, at one place after the producer's last yield."""
        work = self._work
        ordinal = producer.window.next_ordinal
        producer.virtual_yields = 1
        path = Path(producer.origin, producer.node.index, producer.group, producer.activation_id, ordinal)
        sources = {route.source for delivery in deliveries for route in delivery.routes}
        anchored = [join for join in producer.node.anchors if join.port is None or join.port in sources]
        scopes, opened = self._joins.open(producer, anchored, path, ordinal)
        for delivery in deliveries:
            reservation = work.reserve(delivery.node, producer, ordinal, scopes)
            facet = Facet(delivery.group, {})
            work.start_reserved(reservation, path, delivery.node, delivery.group_index, (facet,), 0)
        for tree, place in producer.order_nodes.items():
            work.trees[tree].complete_yield(place, ordinal, work.freed)
        work.flush()
        self._joins.opened(opened)
