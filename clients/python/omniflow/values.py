"""Values of typed fields as Python sees them.

| field type | Python value |
|---|---|
| text | `str` |
| tokens | `Tokens` |
| tensor | `Tensor` |
| image, audio, video | `Image`, `Audio`, `Video` |
| action | `Action` |
| bytes | `bytes` |
| json | `Json` (wraps any JSON value, so that a JSON string is not taken for text) |
| signal | `Signal` |

Payloads are bytes-like and are never copied on construction. numpy is imported only by the methods that need it.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Buffer = bytes | bytearray | memoryview


class ValueType(enum.Enum):
    """Type of a field; the numbers are those of the proto enum `omniflow.common.v1.ValueType`."""

    TEXT = 1
    TOKENS = 2
    TENSOR = 3
    IMAGE = 4
    AUDIO = 5
    VIDEO = 6
    ACTION = 7
    BYTES = 8
    JSON = 9
    SIGNAL = 10


class ElementType(enum.Enum):
    """Element type of a tensor; the numbers are those of the proto enum."""

    BOOL = 1
    UINT8 = 2
    INT32 = 3
    INT64 = 4
    FLOAT16 = 5
    BFLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    INT8 = 9
    INT16 = 10
    FLOAT8_E4M3 = 11
    FLOAT8_E5M2 = 12

    @property
    def size_bytes(self) -> int:
        return _ELEMENT_SIZE[self]


_ELEMENT_SIZE = {
    ElementType.BOOL: 1,
    ElementType.UINT8: 1,
    ElementType.INT8: 1,
    ElementType.FLOAT8_E4M3: 1,
    ElementType.FLOAT8_E5M2: 1,
    ElementType.INT16: 2,
    ElementType.FLOAT16: 2,
    ElementType.BFLOAT16: 2,
    ElementType.INT32: 4,
    ElementType.FLOAT32: 4,
    ElementType.INT64: 8,
    ElementType.FLOAT64: 8,
}


@dataclass(frozen=True, slots=True)
class Tokens:
    """A run of tokens. `text` may be empty while a character is split between tokens."""

    ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[float, ...] = ()
    """Natural logarithms, one for each of `ids`, when they were asked for."""
    completion: int = 0
    """Which completion of the prompt they belong to."""
    alternatives: tuple[tuple[tuple[int, float], ...], ...] = ()
    """For each of `ids` the likeliest tokens at its place with their logarithms, when they were asked for."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A row-major tensor: little-endian elements in `data`, `shape` outermost first."""

    element_type: ElementType
    shape: tuple[int, ...]
    data: Buffer = field(repr=False)

    def __post_init__(self) -> None:
        want = math.prod(self.shape) * self.element_type.size_bytes
        if any(size < 0 for size in self.shape) or memoryview(self.data).nbytes != want:
            raise ValueError(
                f"a {self.element_type.name} tensor of shape {list(self.shape)} has {want} bytes, "
                f"not {memoryview(self.data).nbytes}"
            )

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> Tensor:
        """A tensor over the array's own memory; copied only if the array is not contiguous."""
        import numpy as np

        contiguous = np.ascontiguousarray(array)
        kind = ElementType[contiguous.dtype.name.upper()]
        return cls(kind, tuple(contiguous.shape), contiguous.reshape(-1).view(np.uint8).data)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A read-only view without a copy. bfloat16 and float8 come as their raw uint16 or uint8 bits."""
        import numpy as np

        raw = {
            ElementType.BFLOAT16: "uint16",
            ElementType.FLOAT8_E4M3: "uint8",
            ElementType.FLOAT8_E5M2: "uint8",
        }
        dtype = np.dtype(raw.get(self.element_type, self.element_type.name.lower()))
        view = np.frombuffer(self.data, dtype=dtype).reshape(self.shape)
        view.flags.writeable = False
        return view


@dataclass(frozen=True, slots=True)
class Media:
    """A media item or one piece of it. Use `Image`, `Audio` or `Video`."""

    data: Buffer = field(repr=False)
    mime_type: str = ""
    item: int = 0
    timestamp_s: float = 0.0
    is_partial: bool = False


class Image(Media):
    """An encoded image, or a piece of one."""

    __slots__ = ()


class Audio(Media):
    """Audio, or a piece of it: `audio/wav`, or raw PCM as `audio/L16;rate=16000;channels=1` (little-endian)."""

    __slots__ = ()


class Video(Media):
    """An encoded video, or a piece of one."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a policy: `values` is [steps, dimensions] in the action space `space`."""

    space: str
    values: Tensor


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value: None, bool, float, str, list or dict of them. Numbers are doubles on the wire."""

    value: Any


@dataclass(frozen=True, slots=True)
class Signal:
    """Something happened."""


Value = str | bytes | Tokens | Tensor | Image | Audio | Video | Action | Json | Signal

_TYPE_OF: dict[type, ValueType] = {
    str: ValueType.TEXT,
    Tokens: ValueType.TOKENS,
    Tensor: ValueType.TENSOR,
    Image: ValueType.IMAGE,
    Audio: ValueType.AUDIO,
    Video: ValueType.VIDEO,
    Action: ValueType.ACTION,
    bytes: ValueType.BYTES,
    bytearray: ValueType.BYTES,
    memoryview: ValueType.BYTES,
    Json: ValueType.JSON,
    Signal: ValueType.SIGNAL,
}


def type_of(value: object) -> ValueType:
    """Field type of a Python value. Raises TypeError for anything that is no value."""
    try:
        return _TYPE_OF[type(value)]
    except KeyError:
        raise TypeError(
            f"{type(value).__name__} is no field value; use str, bytes, Tokens, Tensor, Image, Audio, Video, "
            "Action, Json or Signal"
        ) from None
