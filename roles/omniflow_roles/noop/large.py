"""Tensors that are too large for a frame."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import ElementType, Json, Tensor, ValueType
from omniflow_roles.noop.parameters import PARAMETERS, parameters

_PATTERN = bytes(range(251)) * 4096
"""251 is prime, so that a piece that is lost, doubled or moved changes the bytes."""


def pattern(size_bytes: int) -> memoryview:
    """What `noop.large` gives. Filled piece by piece: one large copy would hold up every thread of the process."""
    if size_bytes == 0:
        return memoryview(b"")
    memory = memoryview(mmap.mmap(-1, size_bytes))
    for start in range(0, size_bytes, len(_PATTERN)):
        piece = memory[start : start + len(_PATTERN)]
        piece[:] = _PATTERN[: len(piece)]
    return memory.toreadonly()


class Large(Interface):
    """`count` tensors of `size_bytes` bytes."""

    name = "noop.large"
    inputs = PARAMETERS
    outputs = {"tensor": Field(ValueType.TENSOR)}
    max_concurrency = 4

    def run(self, inputs: Inputs, context: Context) -> Iterator[Outputs]:
        options = parameters(inputs, size_bytes=1 << 20, count=1)
        size_bytes = options["size_bytes"]
        for _ in range(options["count"]):
            yield {"tensor": Tensor(ElementType.UINT8, (size_bytes,), pattern(size_bytes))}


class Swallow(Interface):
    """Takes a tensor; gives its size and SHA-256."""

    name = "noop.swallow"
    inputs = groups(tensor=Field(ValueType.TENSOR))
    outputs = {"digest": Field(ValueType.JSON)}
    max_concurrency = 4

    def run(self, inputs: Inputs, context: Context) -> Outputs:
        tensor = inputs["tensor"]
        assert isinstance(tensor, Tensor)
        size_bytes = memoryview(tensor.data).nbytes
        return {"digest": Json({"size_bytes": size_bytes, "sha256": hashlib.sha256(tensor.data).hexdigest()})}


class Mirror(Interface):
    """Gives its tensor back."""

    name = "noop.mirror"
    inputs = groups(tensor=Field(ValueType.TENSOR))
    outputs = {"tensor": Field(ValueType.TENSOR)}
    max_concurrency = 4

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"tensor": inputs["tensor"]}
