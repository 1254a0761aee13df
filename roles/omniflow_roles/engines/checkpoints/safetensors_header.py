"""The header of a safetensors file, checked without reading its data.

    8 bytes  length n of the header, little-endian
    n bytes  JSON: {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {...}}
    data     the tensors back to back: the first begins at 0, each where the one before ends, the last at the end of the file

By hand and not by the library: that wants numpy or torch, and says of a broken file only that it is broken.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from omniflow_roles.engines.checkpoints.findings import FindingCode, UnreadableError
from omniflow_roles.engines.checkpoints.tensors import StoredTensor

MAX_HEADER_BYTES = 100_000_000
"""The limit of the format's reference reader."""

BITS: Mapping[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits of an element of every dtype of the format."""

_PREFIX_BYTES = 8
_MAX_RANK = 16
"""Far beyond any tensor of a model; bounds the products of sizes that a hostile header could ask for."""

_DAMAGED = "Copy or download the file again."
_MALFORMED = "Write the file again with the safetensors library."


def read_header(file: Path) -> list[StoredTensor]:
    """The tensors of a file in the order of their data. Raises UnreadableError."""
    with file.open("rb") as opened:
        file_bytes = file.stat().st_size
        prefix = opened.read(_PREFIX_BYTES)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < _PREFIX_BYTES or (length <= MAX_HEADER_BYTES and _PREFIX_BYTES + length > file_bytes):
            _refuse(FindingCode.TRUNCATED, file, f"has {file_bytes:,} bytes and ends within its header", _DAMAGED)
        if length > MAX_HEADER_BYTES:
            _refuse(
                FindingCode.BAD_HEADER,
                file,
                f"claims a header of {length:,} bytes; at most {MAX_HEADER_BYTES:,} are allowed",
                _MALFORMED,
            )
        entries = _parse(file, opened.read(length))
    tensors = sorted(_tensors(file, entries), key=lambda found: found[:2])
    _check_layout(file, tensors, file_bytes - _PREFIX_BYTES - length)
    return [tensor for _, _, tensor in tensors]


def _parse(file: Path, header: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(header, object_pairs_hook=_unique)
    except _RepeatedKeyError as repeated:
        _refuse(FindingCode.DUPLICATE_TENSOR, file, f"names {repeated.args[0]!r} twice", _MALFORMED)
    except (ValueError, RecursionError):
        _refuse(FindingCode.BAD_HEADER, file, "has a header that is no JSON", _DAMAGED)
    if not isinstance(entries, dict):
        _refuse(FindingCode.BAD_HEADER, file, "has a header that is no JSON object", _MALFORMED)
    entries.pop("__metadata__", None)
    return entries


def _tensors(file: Path, entries: Mapping[str, Any]) -> Iterable[tuple[int, int, StoredTensor]]:
    """Begin, end, tensor."""
    for name, entry in entries.items():
        match entry:
            case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end]} if (
                _are_sizes([*shape, begin, end]) and len(shape) <= _MAX_RANK and begin <= end
            ):
                pass
            case _:
                _refuse(FindingCode.BAD_HEADER, file, f"does not describe {name!r} as the format wants", _MALFORMED)
        if dtype not in BITS:
            _refuse(FindingCode.UNSUPPORTED_DTYPE, file, f"stores {name!r} in the unknown dtype {dtype!r}", _MALFORMED)
        bits = math.prod(shape) * BITS[dtype]
        if bits != (end - begin) * 8:
            _refuse(
                FindingCode.BAD_OFFSETS,
                file,
                f"gives {end - begin:,} bytes to {name!r}, whose shape {shape} takes {-(-bits // 8):,} as {dtype}",
                _DAMAGED,
            )
        yield (
            begin,
            end,
            StoredTensor(name=name, dtype=dtype, shape=tuple(shape), size_bytes=end - begin, file=file.name),
        )


def _check_layout(file: Path, tensors: list[tuple[int, int, StoredTensor]], data_bytes: int) -> None:
    expected = 0
    for begin, end, tensor in tensors:
        if begin != expected:
            what = "overlaps the tensor before it" if begin < expected else "leaves a hole before it"
            _refuse(
                FindingCode.BAD_OFFSETS,
                file,
                f"has {tensor.name!r} at byte {begin:,} where {expected:,} is next: it {what}",
                _MALFORMED,
            )
        expected = end
    if expected > data_bytes:
        _refuse(
            FindingCode.TRUNCATED,
            file,
            f"has {data_bytes:,} of the {expected:,} bytes of data that its header describes",
            _DAMAGED,
        )
    if expected < data_bytes:
        _refuse(
            FindingCode.BAD_OFFSETS,
            file,
            f"has {data_bytes - expected:,} bytes at its end that no tensor owns",
            _DAMAGED,
        )


def _are_sizes(values: list[Any]) -> bool:
    return all(type(value) is int and 0 <= value < 1 << 63 for value in values)


class _RepeatedKeyError(Exception):
    """A JSON object has a key twice, of which a parser would keep one."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _RepeatedKeyError(key)
        found[key] = value
    return found


def _refuse(code: FindingCode, file: Path, message: str, fix: str) -> NoReturn:
    raise UnreadableError(code, file.name, message, fix)
