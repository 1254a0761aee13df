"""The safetensors files of a Hugging Face directory: which there are, and whether they and their index agree.

    model.safetensors                     alone, or
    model.safetensors.index.json          {"weight_map": {tensor: file}}
    model-00001-of-00002.safetensors ...

transformers looks for them in this order; it reads no other file of weights when it is to use safetensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omniflow_roles.engines.checkpoints.findings import FindingCode, Findings, UnreadableError, and_more
from omniflow_roles.engines.checkpoints.json_files import read_object
from omniflow_roles.engines.checkpoints.safetensors_header import read_header
from omniflow_roles.engines.checkpoints.tensors import StoredTensor
from omniflow_roles.engines.checkpoints.unused_files import report_unused

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

LOADED_DTYPES = frozenset({"BF16", "F16", "F32", "F64"})

_COMPUTED = ("rotary_emb.inv_freq", "position_ids")
"""Ends of names of buffers that old checkpoints store and models compute."""

_AGAIN = "Copy or download the checkpoint again."


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """What the files hold; buffers that a model computes itself are left out."""

    tensors: tuple[StoredTensor, ...]
    file_count: int
    are_readable: bool
    """Whether every file could be read, so that a tensor that is not here is nowhere."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Those of the tensors, the one with the most bytes first."""
        return dtypes_of(self.tensors)


def dtypes_of(tensors: Iterable[StoredTensor]) -> tuple[str, ...]:
    """Their dtypes, the one with the most bytes first."""
    sizes: dict[str, int] = defaultdict(int)
    for tensor in tensors:
        sizes[tensor.dtype] += tensor.size_bytes
    return tuple(sorted(sizes, key=lambda dtype: (-sizes[dtype], dtype)))


def read_weights(folder: Path, findings: Findings, *, single: str = SINGLE, index: str = INDEX) -> StoredWeights:
    """Reads the headers of the files that are loaded; what is wrong goes into `findings`."""
    mapping = None
    if not (folder / single).is_file() and (folder / index).is_file():
        mapping = _read_index(folder / index, findings)
        names = sorted(set(mapping.values()))
    else:
        names = [single] if (folder / single).is_file() else []
    present = [name for name in names if (folder / name).is_file()]
    for name in sorted(set(names) - set(present)):
        findings.error(FindingCode.MISSING_SHARD, name, f"is named in {index} and is not here", _AGAIN)
    report_unused(folder, names, findings, single=single, index=index)
    tensors, are_readable = _read_all(folder, present, findings)
    if mapping is not None:
        _compare(mapping, tensors, findings, index=index, is_complete=are_readable and present == names)
    _check_repeats(tensors, findings)
    weights = tuple(tensor for tensor in tensors if not tensor.name.endswith(_COMPUTED))
    _check_dtypes(weights, findings)
    return StoredWeights(
        tensors=weights, file_count=len(present), are_readable=bool(names) and are_readable and present == names
    )


def _read_index(file: Path, findings: Findings) -> Mapping[str, str]:
    try:
        mapping = read_object(file, FindingCode.BAD_INDEX).get("weight_map")
    except UnreadableError as problem:
        findings.unreadable(problem)
        return {}
    if not mapping or not isinstance(mapping, dict) or not all(isinstance(name, str) for name in mapping.values()):
        findings.error(FindingCode.BAD_INDEX, file.name, "has no weight_map from tensors to files", _AGAIN)
        return {}
    outside = sorted(
        {name for name in mapping.values() if Path(name).name != name or not name.endswith(".safetensors")}
    )
    if outside:
        findings.error(
            FindingCode.BAD_INDEX,
            file.name,
            f"names {outside[0]!r}, which is no safetensors file of this directory",
            "Do not use this checkpoint unless you know who wrote the index.",
        )
        return {}
    return mapping


def _read_all(folder: Path, names: Sequence[str], findings: Findings) -> tuple[list[StoredTensor], bool]:
    tensors: list[StoredTensor] = []
    are_readable = True
    for name in names:
        try:
            tensors += read_header(folder / name)
        except UnreadableError as problem:
            findings.unreadable(problem)
            are_readable = False
    return tensors, are_readable


def _compare(
    mapping: Mapping[str, str], tensors: Iterable[StoredTensor], findings: Findings, *, index: str, is_complete: bool
) -> None:
    """The index against what the files hold."""
    held = {(tensor.name, tensor.file) for tensor in tensors}
    absent = sorted(set(mapping.items()) - held) if is_complete else []
    if absent:
        findings.error(
            FindingCode.MISSING_TENSOR,
            absent[0][1],
            f"does not hold {absent[0][0]!r}, which {index} says it does{and_more(absent)}",
            _AGAIN,
        )
    unnamed = sorted((name, file) for name, file in held if name not in mapping)
    if unnamed:
        findings.error(
            FindingCode.UNINDEXED_TENSOR,
            unnamed[0][1],
            f"holds {unnamed[0][0]!r}, which {index} does not name{and_more(unnamed)}",
            _AGAIN,
        )


def _check_repeats(tensors: Iterable[StoredTensor], findings: Findings) -> None:
    files: dict[str, list[str]] = defaultdict(list)
    for tensor in tensors:
        files[tensor.name].append(tensor.file)
    repeated = sorted(name for name, holders in files.items() if len(holders) > 1)
    if repeated:
        findings.error(
            FindingCode.DUPLICATE_TENSOR,
            files[repeated[0]][1],
            f"holds {repeated[0]!r}, and so does {files[repeated[0]][0]}{and_more(repeated)}",
            "Keep the files of one version of the checkpoint only.",
        )


def _check_dtypes(weights: Iterable[StoredTensor], findings: Findings) -> None:
    wrong = [tensor for tensor in weights if tensor.dtype not in LOADED_DTYPES]
    for dtype in dtypes_of(wrong):
        first, *others = [tensor for tensor in wrong if tensor.dtype == dtype]
        findings.error(
            FindingCode.UNSUPPORTED_DTYPE,
            first.file,
            f"stores {first.name!r} as {dtype}; weights are loaded from {', '.join(sorted(LOADED_DTYPES))}"
            + and_more([first, *others]),
            "Use the unquantised checkpoint, with --dtype int8 to save memory.",
        )
