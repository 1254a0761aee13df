"""Headers of safetensors files: read whole, and refused for everything that does not add up."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omniflow_roles.engines.checkpoints.findings import FindingCode, UnreadableError
from omniflow_roles.engines.checkpoints.safetensors_header import BITS, MAX_HEADER_BYTES, read_header
from tests.roles.engines.checkpoints.building import Tensors, safetensors_bytes

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

BYTE_DTYPES = sorted(dtype for dtype, bits in BITS.items() if bits % 8 == 0)
names = st.text(st.characters(codec="utf-8"), max_size=12).filter(lambda name: name != "__metadata__")
shapes = st.lists(st.integers(0, 5), max_size=4)
files = st.dictionaries(names, st.tuples(st.sampled_from(BYTE_DTYPES), shapes), max_size=6)


def read(folder: Path, content: bytes) -> Any:
    file = folder / "model.safetensors"
    file.write_bytes(content)
    return read_header(file)


def with_header(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def refusal(folder: Path, content: bytes) -> FindingCode:
    with pytest.raises(UnreadableError) as caught:
        read(folder, content)
    assert caught.value.where == "model.safetensors"
    assert caught.value.message
    assert caught.value.fix
    return caught.value.code


@in_one_folder
@given(tensors=files)
def test_header_gives_back_what_was_written(tensors: Tensors, tmp_path: Path) -> None:
    found = read(tmp_path, safetensors_bytes(tensors))
    assert {tensor.name: (tensor.dtype, list(tensor.shape)) for tensor in found} == dict(tensors)
    for tensor in found:
        assert tensor.size_bytes == math.prod(tensor.shape) * BITS[tensor.dtype] // 8
        assert tensor.file == "model.safetensors"


@in_one_folder
@given(tensors=files, data=st.data())
def test_header_of_a_file_cut_anywhere_is_truncated(tensors: Tensors, data: st.DataObject, tmp_path: Path) -> None:
    whole = safetensors_bytes(tensors)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert refusal(tmp_path, whole[:cut]) is FindingCode.TRUNCATED


@in_one_folder
@given(tensors=files, data=st.data())
def test_header_with_a_changed_byte_is_read_or_refused(tensors: Tensors, data: st.DataObject, tmp_path: Path) -> None:
    changed = bytearray(safetensors_bytes(tensors))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(tmp_path, bytes(changed))
    except UnreadableError as problem:
        assert problem.code in FindingCode


@in_one_folder
@given(content=st.binary(max_size=200))
def test_header_of_any_bytes_is_refused(content: bytes, tmp_path: Path) -> None:
    assert refusal(tmp_path, content + b"!") in {FindingCode.TRUNCATED, FindingCode.BAD_HEADER}


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [1] * 17, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1 << 80], "data_offsets": [0, 8]},
        {"dtype": 32, "shape": [2], "data_offsets": [0, 8]},
        {"shape": [2], "data_offsets": [0, 8]},
        [0, 8],
        None,
    ],
)
def test_header_refuses_an_entry_that_the_format_does_not_know(entry: object, tmp_path: Path) -> None:
    assert refusal(tmp_path, with_header({"weight": entry}, bytes(8))) is FindingCode.BAD_HEADER


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (b"[1, 2]", FindingCode.BAD_HEADER),
        (b"\xff\xfe", FindingCode.BAD_HEADER),
        (b"[" * 100_000, FindingCode.BAD_HEADER),
        (b'{"a": {"dtype": "F32"}, "a": {"dtype": "F32"}}', FindingCode.DUPLICATE_TENSOR),
        ({"a": {"dtype": "F12", "shape": [1], "data_offsets": [0, 8]}}, FindingCode.UNSUPPORTED_DTYPE),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}, FindingCode.BAD_OFFSETS),
        ({"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}}, FindingCode.BAD_OFFSETS),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, FindingCode.BAD_OFFSETS),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, FindingCode.BAD_OFFSETS),
    ],
)
def test_header_refuses_what_does_not_add_up(header: object, code: FindingCode, tmp_path: Path) -> None:
    assert refusal(tmp_path, with_header(header, bytes(8))) is code


def test_header_refuses_a_hole_between_tensors(tmp_path: Path) -> None:
    tensors = {"a": ("U8", [4]), "b": ("U8", [4])}
    assert refusal(tmp_path, safetensors_bytes(tensors, b={"data_offsets": [5, 9]}) + b"!") is FindingCode.BAD_OFFSETS


def test_header_that_claims_more_than_the_limit_is_refused_unread(tmp_path: Path) -> None:
    claimed = (MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}"
    assert refusal(tmp_path, claimed) is FindingCode.BAD_HEADER
    assert refusal(tmp_path, MAX_HEADER_BYTES.to_bytes(8, "little") + b"{}") is FindingCode.TRUNCATED
