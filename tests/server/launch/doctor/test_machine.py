"""Checks of the machine, each also on one that fails it."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest

from omniflow_server.launch.doctor import machine
from omniflow_server.launch.doctor.findings import Finding, Verdict


def tool(folder: Path, text: str) -> str:
    """An executable shell script."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def refuse(*arguments: object) -> int:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize(
    "finding",
    [machine.python_version(), machine.operating_system(), machine.memory_files(), machine.open_files(4096)],
    ids=lambda finding: finding.check,
)
def test_machine_that_runs_these_tests_is_well(finding: Finding) -> None:
    assert (finding.verdict, finding.remedy) == (Verdict.OK, "")


def test_python_that_is_too_old_fails() -> None:
    finding = machine.python_version((3, 10, 12))
    assert (finding.verdict, finding.found) == (Verdict.FAILED, "3.10.12")
    assert finding.remedy.startswith("install Python 3.11 or newer")


def test_system_other_than_linux_fails() -> None:
    finding = machine.operating_system("Darwin", "24.1.0")
    assert (finding.verdict, finding.found) == (Verdict.FAILED, "Darwin 24.1.0")
    assert "run it on Linux" in finding.remedy


def test_open_files_below_the_floor_fail() -> None:
    finding = machine.open_files(1024)
    assert (finding.verdict, finding.found) == (Verdict.FAILED, "at most 1024, wanted are 4096")
    assert "ulimit -n 4096" in finding.remedy


def test_open_files_without_a_limit_are_well() -> None:
    assert machine.open_files(resource.RLIM_INFINITY).found == "no limit"


def test_memory_files_that_a_sandbox_forbids_fail() -> None:
    finding = machine.memory_files(refuse)
    assert (finding.verdict, finding.found) == (Verdict.FAILED, "memfd_create: Operation not permitted")


def test_shared_memory_that_can_be_written_is_well(tmp_path: Path) -> None:
    assert machine.shared_memory(tmp_path).found.startswith(f"{tmp_path} is writable, ")
    assert list(tmp_path.iterdir()) == []


def test_shared_memory_that_is_missing_fails(tmp_path: Path) -> None:
    finding = machine.shared_memory(tmp_path / "absent")
    assert (finding.verdict, finding.found) == (Verdict.FAILED, f"{tmp_path}/absent: No such file or directory")
    assert "--shm-size" in finding.remedy


def test_gpu_that_is_not_there_is_no_fault() -> None:
    assert machine.gpu(lambda name: None) == Finding(check="gpu", verdict=Verdict.OK, found="none, CPU only")


@pytest.mark.integration
def test_gpu_that_the_driver_lists_is_named(tmp_path: Path) -> None:
    path = tool(tmp_path, "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo 'GPU 1: NVIDIA H200 (UUID: GPU-2)'")
    finding = machine.gpu(lambda name: path)
    assert (finding.verdict, finding.found) == (Verdict.OK, "GPU 0: NVIDIA H200; GPU 1: NVIDIA H200")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("echo 'no driver' >&2; exit 9", "nvidia-smi: no driver"),
        ("exit 9", "nvidia-smi: status 9"),
        ("exec sleep 60", "timed out"),
    ],
)
def test_gpu_tool_that_fails_is_a_warning(
    text: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_GPU_TIMEOUT_S", 0.3)
    path = tool(tmp_path, text)
    finding = machine.gpu(lambda name: path)
    assert finding.verdict is Verdict.WARNING
    assert found in finding.found


def test_transfer_library_is_only_asked_for_where_mooncake_is() -> None:
    asked: list[str] = []
    assert machine.transfer_library(has_mooncake=False, load=refuse).verdict is Verdict.OK
    assert machine.transfer_library(has_mooncake=True, load=asked.append).verdict is Verdict.OK
    assert asked == ["libibverbs.so.1"]


def test_transfer_library_that_is_missing_is_a_warning() -> None:
    finding = machine.transfer_library(has_mooncake=True, load=refuse)
    assert (finding.verdict, finding.found) == (Verdict.WARNING, "mooncake is installed and libibverbs is not")
    assert "libibverbs1" in finding.remedy
