"""Checks of the machine itself: interpreter, kernel, limits, memory files, devices.

What is looked at comes in as arguments, by default that of this process, so that a test can be another machine.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omniflow_server.launch.doctor.findings import Finding, failed, ok, warning

PYTHON_FLOOR = (3, 11)
OPEN_FILES_FLOOR = 4096
"""Each call, link and value of a busy control plane holds some descriptors; 1,024 calls with payloads pass 4,000."""
_GPU_TIMEOUT_S = 3.0


def python_version(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """The interpreter that runs this."""
    found = ".".join(map(str, version))
    if version >= PYTHON_FLOOR:
        return ok("python", f"{found} ({sys.executable})")
    floor = ".".join(map(str, PYTHON_FLOOR))
    return failed("python", found, f"install Python {floor} or newer and make the environment again with it")


def operating_system(system: str = platform.system(), release: str = platform.release()) -> Finding:
    """Linux: memory files, descriptor passing and the death of children with their parent are its own."""
    if system == "Linux":
        return ok("system", f"{system} {release}")
    return failed("system", f"{system} {release}", "run it on Linux, also in a container or a virtual machine")


def open_files(soft: int | None = None) -> Finding:
    """The soft limit of open files, which every process that is started inherits."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if soft is None else soft
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES_FLOOR:
        return ok("open files", "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}")
    return failed(
        "open files",
        f"at most {soft}, wanted are {OPEN_FILES_FLOOR}",
        f"`ulimit -n {OPEN_FILES_FLOOR}` before `omniflow up`; for good in /etc/security/limits.conf, or LimitNOFILE= of a "
        "systemd unit",
    )


def memory_files(create: Callable[[str], int] = os.memfd_create) -> Finding:
    """Files in memory, in which large values pass between processes."""
    try:
        os.close(create("omniflow-doctor"))
    except OSError as problem:
        return failed(
            "memory files", f"memfd_create: {problem.strerror}", "allow memfd_create in the sandbox or seccomp profile"
        )
    return ok("memory files", "memfd_create works")


def shared_memory(folder: Path = Path("/dev/shm")) -> Finding:  # noqa: S108 - that very folder is what torch uses
    """The folder in which the processes of torch share tensors."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
        size_bytes = shutil.disk_usage(folder).total
    except OSError as problem:
        return failed(
            "shared memory", f"{folder}: {problem.strerror}", f"mount a tmpfs on {folder}; for Docker, --shm-size=1g"
        )
    return ok("shared memory", f"{folder} is writable, {size_bytes / (1 << 20):.0f} MiB")


def gpu(which: Callable[[str], str | None] = shutil.which) -> Finding:
    """GPUs that the NVIDIA driver lists. None is no fault: every role also runs on the CPU."""
    tool = which("nvidia-smi")
    if tool is None:
        return ok("gpu", "none, CPU only")
    try:
        listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=_GPU_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return warning(
            "gpu", f"nvidia-smi does not run: {problem}", "look at the driver; roles run on the CPU until then"
        )
    names = [line.partition(" (UUID")[0] for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    if listed.returncode or not names:
        said = (listed.stderr or listed.stdout).strip() or f"status {listed.returncode}"
        return warning("gpu", f"nvidia-smi: {said}", "look at the driver; roles run on the CPU until then")
    return ok("gpu", "; ".join(names))


def transfer_library(*, has_mooncake: bool, load: Callable[[str], Any] = ctypes.CDLL) -> Finding:
    """What mooncake transfers over RDMA need, where mooncake is installed."""
    if not has_mooncake:
        return ok("rdma", "not needed: mooncake is not installed")
    try:
        load("libibverbs.so.1")
    except OSError:
        return warning(
            "rdma",
            "mooncake is installed and libibverbs is not",
            "install libibverbs1 (Debian, Ubuntu) or libibverbs (Fedora); without it mooncake does not load",
        )
    return ok("rdma", "libibverbs is there for mooncake")
