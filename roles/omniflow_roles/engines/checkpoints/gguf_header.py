"""The header of a GGUF file, checked without reading its data.

    "GGUF"  version: u32   tensors: u64   metadata entries: u64
    entry   key: string    type: u32      value
    tensor  name: string   rank: u32      sizes, innermost first: u64 each   type: u32   offset: u64
    data    each tensor at its offset, padded to the alignment

Strings have a length of 8 bytes before them, all numbers are little-endian. By hand and not by the library `gguf`: that is
installed where roles run, not where the command line does, wants numpy, and takes seconds for a vocabulary.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from omniflow_roles.engines.checkpoints.findings import FindingCode, UnreadableError
from omniflow_roles.engines.checkpoints.tensors import StoredTensor

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_RANK = 4
_MAX_COUNT = 1 << 17
"""Of tensors and of metadata entries: far beyond any model, and little enough to hold."""
_MAX_TEXT_BYTES = 1 << 20
"""Of a key, a name or a single text; chat templates have some 20 kB."""
_KEPT_ELEMENTS = 1024
"""Longer arrays are vocabularies: only their length is kept."""

_SCALARS: Mapping[int, str] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9

TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
"""Name, elements of a block, bytes of a block, by the number in the file."""

DEQUANTISED = frozenset(name for name, _, _ in TYPES.values()) - {"F64", "I16", "I32", "I64", "I8", "Q8_1", "Q8_K"}
"""Types that the library turns into floats; the rest hold no weights."""

_DAMAGED = "Copy or download the file again."

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufArray:
    """An array of metadata; the elements of a long one, or of one of texts, are not kept."""

    length: int
    elements: tuple[Scalar, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """Metadata and tensors of a file."""

    metadata: Mapping[str, Scalar | GgufArray]
    tensors: tuple[StoredTensor, ...]


def read_gguf_header(file: Path) -> GgufHeader:
    """Reads and checks the header. Raises UnreadableError."""
    with file.open("rb") as opened:
        reader = _Reader(opened, file)
        if reader.take(4) != MAGIC:
            reader.refuse(FindingCode.BAD_HEADER, "is no GGUF file: it does not begin with GGUF", _DAMAGED)
        version = reader.number("<I")
        if version not in _VERSIONS:
            reader.refuse(
                FindingCode.BAD_HEADER,
                f"has version {version}, or is big-endian; little-endian versions 2 and 3 are read",
                "Convert the model again with a current llama.cpp.",
            )
        tensor_count, entry_count = reader.number("<Q"), reader.number("<Q")
        if max(tensor_count, entry_count) > _MAX_COUNT:
            reader.refuse(
                FindingCode.BAD_HEADER, f"claims {tensor_count:,} tensors and {entry_count:,} entries", _DAMAGED
            )
        metadata: dict[str, Scalar | GgufArray] = {}
        for _ in range(entry_count):
            key = reader.text()
            if key in metadata:
                reader.refuse(FindingCode.BAD_HEADER, f"names {key!r} twice", _DAMAGED)
            metadata[key] = reader.value()
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
            reader.refuse(FindingCode.BAD_HEADER, f"asks for the alignment {alignment!r}", _DAMAGED)
        tensors = [reader.tensor() for _ in range(tensor_count)]
        reader.check_data(tensors, alignment)
    return GgufHeader(metadata=metadata, tensors=tuple(tensor for _, tensor in tensors))


class _Reader:
    """Takes values off a file, none beyond its end."""

    def __init__(self, opened: BinaryIO, file: Path) -> None:
        self._opened, self._file = opened, file
        self._size_bytes = file.stat().st_size

    def refuse(self, code: FindingCode, message: str, fix: str) -> NoReturn:
        raise UnreadableError(code, self._file.name, message, fix)

    def take(self, count: int) -> bytes:
        self._require(count)
        return self._opened.read(count)

    def skip(self, count: int) -> None:
        self._require(count)
        self._opened.seek(count, os.SEEK_CUR)

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def text(self) -> str:
        length = self.number("<Q")
        if length > _MAX_TEXT_BYTES:
            self.refuse(FindingCode.BAD_HEADER, f"has a text of {length:,} bytes in its header", _DAMAGED)
        return self.take(length).decode("utf-8", "replace")

    def value(self) -> Scalar | GgufArray:
        kind = self.number("<I")
        return self._array() if kind == _ARRAY else self._scalar(kind)

    def tensor(self) -> tuple[int, StoredTensor]:
        """Offset and tensor."""
        name = self.text()
        rank = self.number("<I")
        if rank > _MAX_RANK:
            self.refuse(FindingCode.BAD_HEADER, f"gives {name!r} {rank} dimensions", _DAMAGED)
        sizes = [self.number("<Q") for _ in range(rank)]
        kind, offset = self.number("<I"), self.number("<Q")
        if kind not in TYPES:
            self.refuse(
                FindingCode.UNSUPPORTED_DTYPE,
                f"stores {name!r} in the type {kind}, which is not known",
                "Quantise the model to a common type, such as Q4_K_M or Q8_0.",
            )
        dtype, block_elements, block_bytes = TYPES[kind]
        if sizes and sizes[0] % block_elements:
            self.refuse(
                FindingCode.BAD_HEADER,
                f"has rows of {sizes[0]} in {name!r}, which is no multiple of the {block_elements} of a block of {dtype}",
                _DAMAGED,
            )
        stored = StoredTensor(
            name=name,
            dtype=dtype,
            shape=tuple(reversed(sizes)),
            size_bytes=math.prod(sizes) // block_elements * block_bytes,
            file=self._file.name,
        )
        return offset, stored

    def check_data(self, tensors: list[tuple[int, StoredTensor]], alignment: int) -> None:
        """Every tensor begins where the padded one before it ends, and the last ends within the file."""
        start = _padded(self._opened.tell(), alignment)
        names = {tensor.name for _, tensor in tensors}
        if len(names) < len(tensors):
            self.refuse(FindingCode.DUPLICATE_TENSOR, "names a tensor twice", _DAMAGED)
        end = 0
        for offset, tensor in sorted(tensors, key=lambda found: (found[0], found[1].size_bytes)):
            if offset != _padded(end, alignment):
                self.refuse(
                    FindingCode.BAD_OFFSETS,
                    f"has {tensor.name!r} at byte {offset:,} of its data where {_padded(end, alignment):,} is next",
                    _DAMAGED,
                )
            end = offset + tensor.size_bytes
        if start + end > self._size_bytes:
            self.refuse(
                FindingCode.TRUNCATED,
                f"has {self._size_bytes:,} of the {start + end:,} bytes that its header describes",
                _DAMAGED,
            )

    def _require(self, count: int) -> None:
        if self._opened.tell() + count > self._size_bytes:
            self.refuse(FindingCode.TRUNCATED, f"has {self._size_bytes:,} bytes and ends within its header", _DAMAGED)

    def _scalar(self, kind: int) -> Scalar:
        if kind == _STRING:
            return self.text()
        if kind not in _SCALARS:
            self.refuse(FindingCode.BAD_HEADER, f"has a value of the unknown type {kind}", _DAMAGED)
        form = _SCALARS[kind]
        value: Scalar = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def _array(self) -> GgufArray:
        kind, length = self.number("<I"), self.number("<Q")
        if kind == _STRING:
            for _ in range(length):
                self.skip(self.number("<Q"))
            return GgufArray(length=length, elements=None)
        if kind not in _SCALARS:
            self.refuse(FindingCode.BAD_HEADER, f"has an array of the unknown type {kind}", _DAMAGED)
        if length <= _KEPT_ELEMENTS:
            return GgufArray(length=length, elements=tuple(self._scalar(kind) for _ in range(length)))
        self.skip(length * struct.calcsize(_SCALARS[kind]))
        return GgufArray(length=length, elements=None)


def _padded(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
