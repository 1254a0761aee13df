"""The base of interfaces: what a model author writes, one class per graph node kind.

    class Upper(Interface):
        name = "demo.upper"
        inputs = groups(text=Field(ValueType.TEXT))
        outputs = {"text": Field(ValueType.TEXT)}

        async def run(self, inputs: Inputs, context: Context) -> Outputs:
            return {"text": inputs["text"].upper()}

`run` may be a coroutine function, a plain function, an async generator function or a generator function; a generator
makes the interface streaming, one yield per output. Plain functions and generators run in a thread, so they may block
or compute: heartbeats and other activations go on. Every output is conditional: one that a yield leaves out is *skipped*,
which whoever waits for it is told. A buffer that was yielded must not change afterwards: large ones are kept as they are for
whoever fetches them. Inputs are read-only: between inline nodes, and inside a segment, they are the producer's own objects,
and other nodes may have them too.

An instance lives as long as its process and serves many activations; `setup` is the place to load a model.
Interfaces are found by entry points of the group `omniflow.interfaces`; graphs name them, never code paths.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from omniflow.cancel_flag import CancelFlag
from omniflow.values import Value, ValueType

ENTRY_POINT_GROUP = "omniflow.interfaces"

Outputs = Mapping[str, Value]
"""One yield: values by output field."""

RunResult = Awaitable[Outputs] | AsyncIterator[Outputs] | Iterator[Outputs] | Outputs


@dataclass(frozen=True, slots=True)
class Field:
    """A typed field of an input group or an output."""

    type: ValueType
    is_optional: bool = False
    """An input group can run without it. Of an output it changes nothing and tells readers: a yield may leave it out."""


InputGroups = Mapping[str, Mapping[str, Field]]


def groups(*alternatives: tuple[str, Mapping[str, Field]], **fields: Field) -> InputGroups:
    """Input groups: `groups(text=Field(...))` for one group named "main", or named alternatives

    `groups(("typed", {"text": ...}), ("spoken", {"transcript": ...}))`.
    """
    if alternatives and fields:
        raise TypeError("give either named groups or the fields of one group, not both")
    wrong = next((item for item in alternatives if not (isinstance(item, tuple) and len(item) == 2)), None)
    if wrong is not None:
        raise TypeError(f'{wrong!r} is no named group; write groups(("typed", {{"text": Field(ValueType.TEXT)}}), ...)')
    names = [name for name, _ in alternatives]
    if len({*names}) < len(names):
        raise TypeError(f"two groups have one name: {', '.join(names)}")
    return dict(alternatives) if alternatives else {"main": fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters of the call; None means the model's default. Meanings: proto/omniflow/graph/v1/sampling.proto."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    top_logprobs: int | None = None
    completions: int | None = None
    json_schema: str | None = None
    regex: str | None = None


@dataclass(slots=True, kw_only=True)
class Usage:
    """Counters that an interface adds to its call's."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0


class Inputs(Mapping[str, Value]):
    """Inputs of one activation: `inputs["text"]` is the field's value, `inputs.all("text")` the list of contributions.

    `inputs.group` names the input group that was completed. Absent optional fields are not in the mapping.

    A count join may complete several input groups at once. Then `inputs.facets` are the inputs of each, and what is asked
    of the whole is answered over all of them, in their order.
    """

    __slots__ = ("_context", "_facets", "_fields", "group")

    def __init__(
        self,
        group: str,
        fields: Mapping[str, tuple[Value, ...]],
        *,
        context: Mapping[str, int] | None = None,
        facets: tuple[Inputs, ...] | None = None,
    ) -> None:
        """context: by field, how many leading values are left context.

        facets: the facets of a count join, which then decide group and fields; () is one that selected nothing.
        """
        self.group: str = group if facets is None else facets[0].group if facets else ""
        """Of the first facet of a count join; empty without one."""
        self._fields = fields if facets is None else _merged(facets)
        self._context = context or {}
        self._facets = facets

    @property
    def facets(self) -> tuple[Inputs, ...]:
        """One for each completed input group of a count join, in the order of the node's groups; otherwise these inputs."""
        return (self,) if self._facets is None else self._facets

    def __getitem__(self, name: str) -> Value:
        return self._fields[name][-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def all(self, name: str) -> tuple[Value, ...]:
        """Every contribution of the field, in order; empty when the field is absent. The facets' one after another."""
        return self._fields.get(name, ())

    def context_count(self, name: str) -> int:
        """How many of `all(name)`, from the first on, repeat earlier yields as the left context of a chunk."""
        return self._context.get(name, 0)


def _merged(facets: tuple[Inputs, ...]) -> Mapping[str, tuple[Value, ...]]:
    if len(facets) == 1:
        return facets[0]._fields
    merged: dict[str, tuple[Value, ...]] = {}
    for facet in facets:
        for name, values in facet._fields.items():
            merged[name] = merged.get(name, ()) + values
    return merged


@dataclass(slots=True, kw_only=True)
class Context:
    """What an activation knows of its call, and how it reports.

    `is_cancelled` may be read from any thread; long synchronous loops should look at it between steps. Coroutines and
    async generators are cancelled with asyncio.CancelledError instead.
    """

    call_id: str
    activation_id: int
    node: str
    attempt: int = 1
    delivered: tuple[Outputs, ...] = ()
    """Of a node with replay="continue": what earlier attempts have given. The first yield of this one comes after them."""
    tenant: str = "default"
    session: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    priority: int = 0
    deadline_unix_s: float | None = None
    traceparent: str = ""
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = ""
    """Empty, or "stop", "length" or "tool_calls": set by the node that decides why the call ends."""
    report: Callable[[int, int, str], None] = lambda completed, total, message: None
    """Called by `progress`; any thread."""
    cancelled: CancelFlag = field(default_factory=CancelFlag)
    """For threads that wait: `cancelled.wait(timeout_s)`."""

    @property
    def is_cancelled(self) -> bool:
        return self.cancelled.is_set()

    def progress(self, completed: int, total: int = 0, message: str = "") -> None:
        """Tell the caller how far a long activation is; `total` 0 when not known."""
        self.report(completed, total, message)


class Interface:
    """Base class of interfaces."""

    name: ClassVar[str]
    """Registered name, such as "assistant.llm"."""
    inputs: ClassVar[InputGroups]
    outputs: ClassVar[Mapping[str, Field]]
    max_concurrency: ClassVar[int] = 1
    """Activations that run at the same time in one role process; the rest wait. Inline nodes are not limited by it."""

    def setup(self) -> Awaitable[None] | None:
        """Load what the interface needs. Runs once, before the process counts as ready; may block."""
        return None

    def teardown(self) -> Awaitable[None] | None:
        """Release it. Runs once, when the process stops in order."""
        return None

    def on_cancel(self, call_id: str) -> None:
        """Called at once when a call is cancelled, before its activations of this process are stopped. Must not block."""

    def run(self, inputs: Inputs, context: Context) -> Any:
        """One activation; see the module's docstring for the four forms. Returns `RunResult`."""
        raise NotImplementedError

    @classmethod
    def is_streaming(cls) -> bool:
        """May yield more than once."""
        return inspect.isasyncgenfunction(cls.run) or inspect.isgeneratorfunction(cls.run)

    @classmethod
    def is_blocking(cls) -> bool:
        """Runs in a thread: a plain function or generator."""
        return not (inspect.isasyncgenfunction(cls.run) or asyncio.iscoroutinefunction(cls.run))
