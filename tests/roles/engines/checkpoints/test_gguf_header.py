"""Headers of GGUF files: read whole, and refused for everything that does not add up."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omniflow_roles.engines.checkpoints.findings import FindingCode, UnreadableError
from omniflow_roles.engines.checkpoints.gguf_header import GgufArray, GgufHeader, read_gguf_header
from tests.roles.engines.checkpoints.building import GgufBytes, gguf_llama

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
Q8_0, Q4_K = 8, 12


def read(folder: Path, content: bytes) -> GgufHeader:
    file = folder / "model.gguf"
    file.write_bytes(content)
    return read_gguf_header(file)


def refusal(folder: Path, content: bytes) -> FindingCode:
    with pytest.raises(UnreadableError) as caught:
        read(folder, content)
    assert caught.value.where == "model.gguf"
    return caught.value.code


def test_header_has_metadata_and_tensors(tmp_path: Path) -> None:
    written = GgufBytes().text("general.architecture", "llama").number("llama.block_count", 2)
    written.numbers("llama.heads", [4, 8]).numbers("long", [7] * 2000).texts("words", ["a", "bc"])
    written.tensor("a", [3, 32], Q8_0).tensor("b", [5]).tensor("c", [2, 256], Q4_K)
    header = read(tmp_path, written.build())
    assert header.metadata == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.heads": GgufArray(length=2, elements=(4, 8)),
        "long": GgufArray(length=2000, elements=None),
        "words": GgufArray(length=2, elements=None),
    }
    assert [(t.name, t.dtype, t.shape, t.size_bytes) for t in header.tensors] == [
        ("a", "Q8_0", (3, 32), 3 * 34),
        ("b", "F32", (5,), 20),
        ("c", "Q4_K", (2, 256), 2 * 144),
    ]


def test_header_counts_from_the_alignment_that_the_file_states(tmp_path: Path) -> None:
    written = GgufBytes(alignment=64).number("general.alignment", 64).tensor("a", [1]).tensor("b", [1])
    assert [tensor.name for tensor in read(tmp_path, written.build()).tensors] == ["a", "b"]


@in_one_folder
@given(data=st.data())
def test_header_of_a_file_cut_anywhere_is_truncated(data: st.DataObject, tmp_path: Path) -> None:
    whole = gguf_llama().build()
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert refusal(tmp_path, whole[:cut]) is FindingCode.TRUNCATED


@in_one_folder
@given(data=st.data())
def test_header_with_changed_bytes_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    changed = bytearray(gguf_llama().build())
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, 1800))] = data.draw(st.integers(0, 255))
    try:
        read(tmp_path, bytes(changed))
    except UnreadableError as problem:
        assert problem.code in FindingCode


def changed(content: bytes, at: int, to: bytes) -> bytes:
    return content[:at] + to + content[at + len(to) :]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"PK\x03\x04" + bytes(40), FindingCode.BAD_HEADER),
        (gguf_llama().build().replace(b"GGUF\x03\0\0\0", b"GGUF\x01\0\0\0", 1), FindingCode.BAD_HEADER),
        (gguf_llama().build().replace(b"GGUF\x03\0\0\0", b"GGUF\0\0\0\x03", 1), FindingCode.BAD_HEADER),
        (changed(gguf_llama().build(), 8, b"\xff" * 8), FindingCode.BAD_HEADER),
        (GgufBytes().number("general.alignment", 24).build(), FindingCode.BAD_HEADER),
        (GgufBytes().number("a", 1).number("a", 2).build(), FindingCode.BAD_HEADER),
        (GgufBytes().tensor("a", [33], Q8_0).build(), FindingCode.BAD_HEADER),
        (GgufBytes().tensor("a", [1] * 5).build(), FindingCode.BAD_HEADER),
        (GgufBytes().tensor("a", [32], 99).build(), FindingCode.UNSUPPORTED_DTYPE),
        (GgufBytes().tensor("a", [8]).tensor("a", [8]).build(), FindingCode.DUPLICATE_TENSOR),
        (GgufBytes().tensor("a", [16]).tensor("b", [8], shift=-32).build(), FindingCode.BAD_OFFSETS),
        (GgufBytes().tensor("a", [8]).tensor("b", [8], shift=32).build(), FindingCode.BAD_OFFSETS),
    ],
)
def test_header_refuses_what_does_not_add_up(content: bytes, code: FindingCode, tmp_path: Path) -> None:
    assert refusal(tmp_path, content) is code
