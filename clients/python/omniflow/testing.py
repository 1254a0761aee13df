"""Runs one interface the way a graph would, without a server: for the tests of its author.

    async def test_upper_shouts() -> None:
        run = await run_interface(Upper, text="hi")
        assert run.yields == ({"text": "HI"},)

The interface goes through the same code as in a role process: its outputs are checked against what it declares, plain
functions run in a thread, and what it raises becomes the same typed error.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass

from omniflow.activation import Activation
from omniflow.interface import Context, Inputs, Interface, Outputs, Sampling, Usage
from omniflow.values import Value
from omniflow_core.errors import ErrorInfo, OmniFlowError


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceRun:
    """What one activation gave."""

    yields: tuple[Outputs, ...]
    progress: tuple[tuple[int, int, str], ...]
    """Reports as (completed, total, message); of several in one tick of the loop only the newest is kept."""
    usage: Usage
    finish_reason: str

    def text(self, field: str) -> str:
        """The texts of an output over all yields, joined."""
        return "".join(str(outputs[field]) for outputs in self.yields if field in outputs)


async def run_interface(
    interface: type[Interface] | Interface,
    inputs: Mapping[str, Value | tuple[Value, ...]] | None = None,
    /,
    *,
    group: str = "",
    sampling: Sampling | None = None,
    session: str = "",
    **fields: Value | tuple[Value, ...],
) -> InterfaceRun:
    """Runs an interface once and collects what it gives.

    interface: a class, which is set up and torn down around the run, or an instance, which is used as it is.
    inputs, fields: values by input field; a tuple is several contributions.
    group: the input group; the only one that has all given fields when empty.

    Raises OmniFlowError as the activation would fail, ValueError for inputs that fit no group.
    """
    given = {**(inputs or {}), **fields}
    instance = interface() if isinstance(interface, type) else interface
    taken = Inputs(
        group or _group_of(instance, given),
        {name: value if isinstance(value, tuple) else (value,) for name, value in given.items()},
    )
    context = Context(
        call_id="test", activation_id=1, node=instance.name, session=session, sampling=sampling or Sampling()
    )
    if instance is not interface:
        await _maybe(instance.setup())
    try:
        sink = _Collector()
        activation = Activation(
            instance, taken, context, sink, yield_window=2**31 - 1, byte_credit=2**63 - 1, threads=None
        )
        await activation.run()
    finally:
        if instance is not interface:
            await _maybe(instance.teardown())
    if sink.error is not None:
        raise OmniFlowError.of(sink.error)
    return InterfaceRun(
        yields=tuple(sink.yields),
        progress=tuple(sink.reports),
        usage=context.usage,
        finish_reason=context.finish_reason,
    )


def _group_of(interface: Interface, given: Mapping[str, object]) -> str:
    fitting = [
        name
        for name, fields in interface.inputs.items()
        if given.keys() <= fields.keys()
        and all(field.is_optional or field_name in given for field_name, field in fields.items())
    ]
    if len(fitting) == 1:
        return fitting[0]
    known = "; ".join(f"{name}({', '.join(fields)})" for name, fields in interface.inputs.items())
    what = "fit several groups, name one" if fitting else "fit no input group"
    raise ValueError(f"the fields {', '.join(sorted(given)) or '(none)'} {what} of {interface.name}: {known}")


async def _maybe(result: object) -> None:
    if inspect.isawaitable(result):
        await result


class _Collector:
    """The sink of one run."""

    def __init__(self) -> None:
        self.yields: list[Outputs] = []
        self.reports: list[tuple[int, int, str]] = []
        self.error: ErrorInfo | None = None

    def yielded(self, ordinal: int, outputs: Outputs) -> int:
        self.yields.append(outputs)
        return 0

    def progress(self, completed: int, total: int, message: str) -> None:
        self.reports.append((completed, total, message))

    def answered(self, ordinal: int, outputs: Outputs, context: Context) -> None:
        self.yielded(ordinal, outputs)
        self.completed(ordinal + 1, context)

    def completed(self, yield_count: int, context: Context) -> None:
        pass

    def failed(self, error: ErrorInfo, is_retryable: bool) -> None:
        self.error = error
