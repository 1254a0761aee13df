"""How a call looks from the inside: a tree of activations by cause with bars over time, then what waits, and for whom.

    activation             state     yields    began     took
    call                                 1
    └─ words.main #1       finished      2      0 ms   520 ms  ..-=================
       ├─ exclaim.main #2  finished      1    110 ms    10 ms     =
       └─ exclaim.main #3  running       0    220 ms   300 ms       .--------------

Bars on a terminal are blocks; elsewhere they are plain characters and lines are not cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from omniflow.graph.v1 import inspection_pb2 as pb
from omniflow.workflow.v1.workflow_service_pb2 import JOIN_KIND_COUNT
from omniflow_server.cli import terminal
from omniflow_server.cli.call_history import CALL, CallHistory, Life

_LEAST_BAR, _PLAIN_WIDTH = 12, 110
_FOLDED, _SHOWN = 8, 3
"""Siblings that ended well are folded when there are more than the one; as many as the other are shown."""
_STYLES = {
    "finished": "green",
    "running": "cyan",
    "sent": "yellow",
    "held": "yellow",
    "failed": "bold red",
    "stopped": "dim",
    "ended": "dim",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A line of the tree."""

    name: str
    life: Life | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bars:
    """Characters for: waits for a replica, works before its first yield, yields."""

    sent: str
    works: str
    yields: str


_PLAIN, _BLOCKS = _Bars(sent=".", works="-", yields="="), _Bars(sent="░", works="▒", yields="█")


def show_tree(history: CallHistory, console: Console, *, is_folded: bool) -> None:
    """Prints the tree with its bars."""
    rows = [_Row(name="call"), *_rows(history, is_folded=is_folded)]
    name_width = max(len("activation"), *(len(row.name) for row in rows))
    head = f"{'activation':{name_width}}  {'state':8}  {'yields':>6}  {'began':>8}  {'took':>8}  "
    width = console.width if console.is_terminal else max(console.width, _PLAIN_WIDTH)
    bars = _BLOCKS if console.is_terminal else _PLAIN
    bar_width = max(_LEAST_BAR, width - len(head) - 1)
    _print(console, Text(f"{head}{_scale(history.now_us, bar_width)}", "bold"))
    for row in rows:
        line = Text(f"{row.name:{name_width}}  ")
        if row.life is not None:
            life = row.life
            line.append(f"{life.state:8}", _STYLES.get(life.state, ""))
            line.append(
                f"  {life.yields:6}  {duration(life.begin_us):>8}  {duration(_took(life, history.now_us)):>8}  "
            )
            line.append(_bar(life, history.now_us, bar_width, bars), _STYLES.get(life.state, ""))
        if row.note:
            line.append(row.note, "dim")
        _print(console, _without_end(line))
    _print(console, Text(f"bars: {bars.sent} sent, {bars.works} at work, {bars.yields} yielding", "dim"))


def show_snapshot(snapshot: pb.SchedulerSnapshot, console: Console, *, title: str) -> None:
    """Prints open buckets and gates, when there are any."""
    if snapshot.buckets:
        _print(console, Text(f"\n{title}", "bold"))
        for bucket in snapshot.buckets:
            _print(console, Text(f"  {describe_bucket(bucket)}"))
    if snapshot.buckets_left_out:
        _print(console, Text(f"  and {snapshot.buckets_left_out} more", "dim"))
    gates = [gate for gate in snapshot.gates if gate.running or gate.waiting]
    if gates:
        _print(console, Text("\ngates", "bold"))
        for gate in gates:
            waiting = ", ".join(f"#{number}" for number in gate.waiting)
            who = f"#{gate.running} runs" if gate.running else "free"
            _print(console, Text(f"  {gate.node}: {who}{f'; {waiting} wait' if waiting else ''}"))


def describe_bucket(bucket: pb.BucketInspection) -> str:
    """What a bucket holds, what it waits for, and who may still bring it."""
    if bucket.kind == JOIN_KIND_COUNT:
        name = f"{bucket.node}: count join"
        fields = sorted({*bucket.contributions, *bucket.wanted})
        held = [f"{field} {bucket.contributions[field]} of {_wanted(bucket, field)}" for field in fields]
    else:
        path = ".".join(map(str, bucket.anchor_path)) or "the call"
        name = f"{bucket.node}.{bucket.input_group}: bucket {bucket.bucket_id} below {path}"
        held = [f"{field} {count}" for field, count in sorted(bucket.contributions.items())]
    parts = [f"{name}, holds {', '.join(held) or 'nothing yet'} ({bucket.size_bytes} bytes)"]
    if bucket.missing:
        parts.append(f"misses {', '.join(bucket.missing)}")
    if bucket.holders:
        parts.append(f"waits for {', '.join(bucket.holders)}")
    return "; ".join(parts)


def _wanted(bucket: pb.BucketInspection, field: str) -> str:
    return str(bucket.wanted[field]) if field in bucket.wanted else "?"


# --- the tree -----------------------------------------------------------------------------------------------------------


def _rows(history: CallHistory, *, is_folded: bool) -> Iterator[_Row]:
    children: dict[int, list[Life]] = defaultdict(list)
    for life in history.lives.values():
        children[life.parent].append(life)
    stack = [(item, "", is_last) for item, is_last in reversed(_items(children, CALL, is_folded))]
    while stack:
        item, indent, is_last = stack.pop()
        branch = f"{indent}{'└─' if is_last else '├─'} "
        if isinstance(item, str):
            yield _Row(name=f"{branch}{item}")
            continue
        yield _Row(name=f"{branch}{_name(item)}", life=item, note=_note(item))
        below = f"{indent}{'   ' if is_last else '│  '}"
        inside = _items(children, item.activation_id, is_folded)
        stack.extend((child, below, last) for child, last in reversed(inside))


def _items(children: dict[int, list[Life]], parent: int, is_folded: bool) -> list[tuple[Life | str, bool]]:
    """What stands below an activation, with whether it is the last; long runs of equals become one line."""
    items: list[Life | str] = []
    for run in _runs(children[parent], children):
        if is_folded and len(run) > _FOLDED:
            items += [*run[:_SHOWN], f"… {len(run) - _SHOWN} more of {run[0].node}, finished"]
        else:
            items += run
    return [(item, index == len(items) - 1) for index, item in enumerate(items)]


def _runs(lives: Sequence[Life], children: dict[int, list[Life]]) -> Iterator[list[Life]]:
    """Neighbours that are alike: of one group, finished, with nothing below."""
    run: list[Life] = []
    for life in lives:
        is_plain = life.state == "finished" and not children[life.activation_id]
        is_alike = bool(run) and (life.node, life.group) == (run[0].node, run[0].group)
        if run and not (is_plain and is_alike):
            yield run
            run = []
        if is_plain:
            run.append(life)
        else:
            yield [life]
    if run:
        yield run


def _name(life: Life) -> str:
    group = f".{life.group}" if life.group else ""
    attempt = f" attempt {life.attempt}" if life.attempt > 1 else ""
    return f"{life.node}{group} #{life.activation_id}{attempt}"


def _note(life: Life) -> str:
    parts = []
    if life.error:
        parts.append(life.error.splitlines()[0])
    if life.sources not in ((), (life.parent,)):
        shown = ", ".join("the call" if source == CALL else f"#{source}" for source in life.sources[:8])
        parts.append(f"from {shown}{', …' if len(life.sources) > 8 else ''}")
    return f"  {'; '.join(parts)}" if parts else ""


# --- times --------------------------------------------------------------------------------------------------------------


def _took(life: Life, now_us: int) -> int | None:
    if life.begin_us is None or (life.has_ended and life.end_us is None):
        return None
    return (now_us if life.end_us is None else life.end_us) - life.begin_us


def _bar(life: Life, now_us: int, width: int, bars: _Bars) -> str:
    if life.begin_us is None or (life.has_ended and life.end_us is None):
        return " " * width
    end_us = now_us if life.end_us is None else life.end_us
    accepted_us = end_us if life.accepted_us is None else life.accepted_us
    yield_us = end_us if life.first_yield_us is None else life.first_yield_us
    points = [_column(at, now_us, width) for at in (life.begin_us, accepted_us, yield_us, end_us)]
    begin, accepted, first, end = points
    end = max(end, begin + 1)
    drawn = bars.sent * (accepted - begin) + bars.works * (max(first, accepted) - accepted)
    last = bars.yields if life.first_yield_us is not None else bars.works if life.accepted_us is not None else bars.sent
    drawn += last * (end - begin - len(drawn))
    return f"{' ' * begin}{drawn}".ljust(width)


def _column(at_us: int, now_us: int, width: int) -> int:
    return min(width - 1, at_us * width // max(1, now_us))


def _scale(now_us: int, width: int) -> str:
    end = duration(now_us)
    return f"0{end:>{width - 1}}" if width > len(end) + 2 else ""


def duration(time_us: int | None) -> str:
    """A time for a narrow column: milliseconds below ten seconds; a dash for None."""
    if time_us is None:
        return "-"
    if time_us < 10_000:
        return f"{time_us / 1000:.1f} ms"
    if time_us < 10_000_000:
        return f"{time_us / 1000:.0f} ms"
    return terminal.seconds(time_us / 1e6)


def _without_end(line: Text) -> Text:
    line.rstrip()
    return line


def _print(console: Console, line: Text) -> None:
    """A line that is cut on a terminal, and whole elsewhere."""
    if console.is_terminal:
        console.print(line, no_wrap=True, overflow="ellipsis")
    else:
        console.print(line, soft_wrap=True)
