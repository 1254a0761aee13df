"""Our readers of headers against files of the formats' own libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from omniflow_roles.engines.checkpoints import findings, gguf_header
from omniflow_roles.engines.checkpoints.safetensors_header import read_header
from tests.roles.engines.checkpoints import building as make

pytestmark = pytest.mark.assistant

FileAndTensors = tuple[Path, list[tuple[str, str, tuple[int, ...], int]]]
"""A file, and name, type, shape and bytes of its tensors."""


@pytest.fixture
def quantised(tmp_path: Path) -> FileAndTensors:
    """A file of the library's with a tensor of each type, and what the library says of them."""
    import gguf
    import numpy

    file = tmp_path / "types.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    expected: list[tuple[str, str, tuple[int, ...], int]] = []
    for kind, (name, block_elements, block_bytes) in gguf_header.TYPES.items():
        data = numpy.zeros((3, 2 * block_bytes), dtype=numpy.uint8)
        writer.add_tensor(f"tensor.{kind}", data, raw_dtype=gguf.GGMLQuantizationType(kind))
        expected.append((f"tensor.{kind}", name, (3, 2 * block_elements), data.nbytes))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file, expected


def test_gguf_header_reads_what_the_library_writes(
    quantised: FileAndTensors,
) -> None:
    import gguf

    file, expected = quantised
    header = gguf_header.read_gguf_header(file)
    assert [(t.name, t.dtype, t.shape, t.size_bytes) for t in header.tensors] == expected
    for kind, (name, *sizes) in gguf_header.TYPES.items():
        member = gguf.GGMLQuantizationType(kind)
        assert (member.name, tuple(sizes)) == (name, gguf.GGML_QUANT_SIZES[member])


def test_gguf_types_that_count_as_weights_are_those_that_the_library_dequantises() -> None:
    import gguf
    import numpy

    for kind, (name, _, block_bytes) in gguf_header.TYPES.items():
        data = numpy.zeros((1, block_bytes), dtype=numpy.uint8)
        try:
            gguf.dequantize(data, gguf.GGMLQuantizationType(kind))
        except NotImplementedError:
            assert name not in gguf_header.DEQUANTISED
        else:
            assert name in gguf_header.DEQUANTISED


def test_safetensors_header_reads_what_the_library_writes(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    dtypes = {
        "BOOL": torch.bool,
        "U8": torch.uint8,
        "I8": torch.int8,
        "F8_E5M2": torch.float8_e5m2,
        "F8_E4M3": torch.float8_e4m3fn,
        "I16": torch.int16,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "I32": torch.int32,
        "F32": torch.float32,
        "F64": torch.float64,
        "I64": torch.int64,
    }
    save_file({name: torch.zeros(2, 3).to(dtype) for name, dtype in dtypes.items()}, tmp_path / "all.safetensors")
    found = read_header(tmp_path / "all.safetensors")
    assert {tensor.name: tensor.dtype for tensor in found} == {name: name for name in dtypes}
    assert {tensor.shape for tensor in found} == {(2, 3)}


def test_safetensors_that_the_library_refuses_are_refused(tmp_path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    good = {"a": ("F32", [4]), "b": ("F32", [4])}
    for name, changed in {
        "overlap": {"b": {"data_offsets": [8, 24]}},
        "hole": {"b": {"data_offsets": [20, 36]}},
        "shape": {"b": {"shape": [3]}},
        "short": {"b": {"data_offsets": [16, 48], "shape": [8]}},
    }.items():
        file = tmp_path / f"{name}.safetensors"
        file.write_bytes(make.safetensors_bytes(good, **changed))
        with pytest.raises(SafetensorError):
            safe_open(file, "pt").__enter__()
        with pytest.raises(findings.UnreadableError):
            read_header(file)
