"""Tables of what a sampler saw."""

from __future__ import annotations

from typing import Any

from tests.bench.profiling.samples import Samples

LOOP = ("/usr/lib/python3.11/asyncio/runners.py", 86, "Runner.run")
CALL = ("/here/server/omniflow_server/control/call.py", 130, "Call.handle")
WRITE = ("/envs/base/lib/python3.11/site-packages/grpc/aio/_call.py", 1, "write")


def samples(*seen: tuple[list[tuple[str, int, str]], int]) -> Samples:
    content: dict[str, Any] = {
        "cpu_s": 0.02,
        "main_cpu_s": 0.015,
        "stacks": [{"stack": stack, "count": count} for stack, count in seen],
    }
    return Samples.of(content, "/here")


def test_samples_count_where_the_thread_was_and_what_had_called_it() -> None:
    seen = samples(([CALL, LOOP], 3), ([WRITE, CALL, LOOP], 1), ([LOOP], 4))
    assert seen.own == {
        "server/omniflow_server/control/call.py:130 Call.handle": 3,
        "grpc/aio/_call.py:1 write": 1,
        "asyncio/runners.py:86 Runner.run": 4,
    }
    assert seen.cumulative == {
        "server/omniflow_server/control/call.py:130 Call.handle": 4,
        "grpc/aio/_call.py:1 write": 1,
        "asyncio/runners.py:86 Runner.run": 8,
    }


def test_samples_count_a_function_that_calls_itself_once() -> None:
    seen = samples(([CALL, CALL, LOOP], 2))
    assert seen.cumulative["server/omniflow_server/control/call.py:130 Call.handle"] == 2


def test_samples_share_the_measured_time_among_them() -> None:
    lines = samples(([CALL, LOOP], 3), ([LOOP], 1)).lines(operations=100)
    assert lines[0] == "4 samples of 200.0 us CPU an operation, 150.0 of them in the main thread"
    assert lines[3] == "  75.0%    150.00 us  server/omniflow_server/control/call.py:130 Call.handle"
    assert lines[-2].split() == ["100.0%", "200.00", "us", "asyncio/runners.py:86", "Runner.run"]


def test_samples_show_the_largest_only() -> None:
    lines = samples(([CALL], 3), ([LOOP], 1)).lines(operations=100, top=1)
    assert len(lines) == 7
    assert "Runner.run" not in lines[3]
