"""What the control plane costs, beside other systems' and with all parts of it real: graphs of nodes that do nothing.

    ours, inline, in process            accept ─▶ nodes in the control plane ─▶ terminal event in the log
    ours, inline, with the client's RPC client ⇄ control plane
    ours, a process per role            client ⇄ control plane ⇄ roles, over gRPC and over each lane
    peers                               as they are timed by themselves: the request begins and ends in their own process

`topologies` says what runs, `comparison` runs a topology, `streams` the tokens of one role; `rivals` has the peers.
"""

from __future__ import annotations

from tests.bench.control import comparison, ours, streams
from tests.bench.control.comparison import HELD_TOPOLOGY, compare
from tests.bench.control.rivals import Rivals
from tests.bench.control.topologies import TOPOLOGIES
from tests.bench.harness.options import Options
from tests.bench.harness.report import Report


async def run(options: Options) -> Report:
    """The bench."""
    peers = Rivals() if options.has_peers else None
    if peers is not None:
        await peers.build()
    async with ours.systems() as systems:
        compared = {topology: await compare(topology, systems.by_lane, peers, options) for topology in TOPOLOGIES}
        tokens = await streams.run(systems.by_lane, options)
    section, stream_checks = streams.report(tokens, systems.by_lane)
    not_run = {
        f"{topology}, {name}": reason for topology in TOPOLOGIES for name, reason in compared[topology].not_run.items()
    }
    not_run |= systems.not_run
    if peers is None:
        not_run["peers"] = "not asked for; --peers builds their environments and runs them"
    checks, notes = comparison.checks(compared[HELD_TOPOLOGY])
    return Report(
        name="control",
        title="control: requests through graphs of nodes that do nothing",
        columns=comparison.COLUMNS,
        rows=[row for topology in TOPOLOGIES for row in compared[topology].rows()],
        sections=[section],
        checks=[*checks, *stream_checks],
        looks=[look for topology in TOPOLOGIES for look in compared[topology].results.looks] + list(tokens.looks),
        details={
            **{topology: compared[topology].as_json() for topology in TOPOLOGIES},
            "streams": tokens.as_json(),
        },
        notes=notes,
        not_run=not_run,
    )
