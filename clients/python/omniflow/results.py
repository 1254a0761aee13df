"""What a whole call gave: its outputs, collected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from omniflow.events import Event, Finished, Output
from omniflow.values import Audio, Image, Tokens, Value, Video
from omniflow_core.errors import OmniFlowError, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """Everything a successful call gave."""

    call_id: str
    outputs: Mapping[str, tuple[Value, ...]]
    """Values by output field, in order."""
    finished: Finished

    def values(self, field: str) -> tuple[Value, ...]:
        """The values of an output; empty when it gave none."""
        return self.outputs.get(field, ())

    def value(self, field: str) -> Value:
        """The only value of an output. Raises LookupError when there is none or more than one."""
        values = self.values(field)
        if len(values) != 1:
            known = ", ".join(sorted(self.outputs)) or "none"
            raise LookupError(f"output {field!r} gave {len(values)} values, not one; outputs with values: {known}")
        return values[0]

    def text(self, field: str, *, completion: int = 0) -> str:
        """The texts and tokens of an output, joined; of tokens those of one completion."""
        return "".join(_texts(field, self.values(field), completion))

    def data(self, field: str) -> bytes:
        """The bytes of an output's media or byte values, joined."""
        return b"".join(_datas(field, self.values(field)))


def _texts(field: str, values: Sequence[Value], completion: int) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Tokens):
            if value.completion == completion:
                yield value.text
        else:
            raise TypeError(f"output {field!r} has a {type(value).__name__} and is no text")


def _datas(field: str, values: Sequence[Value]) -> Iterator[bytes | bytearray | memoryview]:
    for value in values:
        if isinstance(value, Image | Audio | Video):
            yield value.data
        elif isinstance(value, bytes | bytearray | memoryview):
            yield value
        else:
            raise TypeError(f"output {field!r} has a {type(value).__name__} without bytes of its own")


class Batches(Protocol):
    """A stream of events, read in batches."""

    @property
    def call_id(self) -> str: ...

    async def next_batch(self) -> list[Event]: ...

    async def aclose(self) -> None: ...


async def collect(events: Batches) -> CallResult:
    """The result of a call. Raises OmniFlowError when it fails; leaving early closes the stream."""
    outputs: dict[str, list[Value]] = {}
    try:
        while batch := await events.next_batch():
            for event in batch:
                if type(event) is Output:
                    outputs.setdefault(event.field, []).append(event.value)
                elif type(event) is Finished:
                    return CallResult(
                        call_id=events.call_id,
                        outputs={field: tuple(values) for field, values in outputs.items()},
                        finished=event,
                    )
    finally:
        await events.aclose()
    raise OmniFlowError(Reason.CALL_CANCELLED, "the stream was closed before the call had ended", is_stated=False)
