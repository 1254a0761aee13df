"""Habits of every process of the platform: it dies with its parent, keeps its sockets private and never forks.

    die_with_parent()                                   first thing in main
    async def serve():
        with forbid_forks(), sole_loop():
            with listen_umask():
                server.add_insecure_port(unix_target(runtime_dir("demo") / "llm-0.sock"))

Linux only, as the memory files and descriptor passing of the data plane are.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omniflow_core.errors import OmniFlowError, Reason

PARENT_PID = "OMNIFLOW_PARENT_PID"
"""Environment variable in which a supervisor tells a child whom it must not outlive."""
RUNTIME_DIR = "OMNIFLOW_RUNTIME_DIR"

_PR_SET_PDEATHSIG = 1
_MAX_UNIX_PATH_BYTES = 107
"""sun_path has 108 bytes on Linux, one of them the terminator."""


def die_with_parent() -> None:
    """Arrange that this process is killed when the parent named in `OMNIFLOW_PARENT_PID` dies; exits if it is gone.

    Without the variable nothing is done: a process that a person started may outlive the shell. The kernel watches the
    *thread* that started the process, so a supervisor must start its children from a thread that lives on.
    """
    parent = os.environ.get(PARENT_PID, "")
    if not parent:
        return
    if not parent.isdigit():
        raise OmniFlowError(Reason.INVALID_CONFIG, f"{PARENT_PID} is {parent!r}, not a process id")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # The parent may have died before the line above; then no signal will come, and we have another parent by now.
    if os.getppid() != int(parent):
        os._exit(1)


def runtime_dir(name: str = "") -> Path:
    """The folder for sockets and state, made with mode 0700; `name` is a folder in it.

    `$OMNIFLOW_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/omniflow`, else `omniflow-<uid>` where temporary files go. Raises
    INVALID_CONFIG for a folder that others own or can enter: whoever can replace a socket can read every call.
    """
    base = _base_dir()
    _private_dir(base)
    if not name:
        return base
    if name in (".", "..") or "/" in name:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"{name!r} is no name of a folder")
    _private_dir(base / name)
    return base / name


def _base_dir() -> Path:
    if own := os.environ.get(RUNTIME_DIR):
        return Path(own).absolute()
    if session := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(session) / "omniflow"
    return Path(tempfile.gettempdir()) / f"omniflow-{os.getuid()}"


def _private_dir(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    found = path.lstat()  # not stat: a link in a folder that all may write to is somebody else's choice
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"{path} must be a folder of this user that nobody else can enter (mode 0700)",
            metadata={"path": str(path)},
        )


@contextlib.contextmanager
def listen_umask() -> Iterator[None]:
    """Unix sockets that are bound inside are 0600. The mask belongs to the whole process, so keep the block short."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def unix_target(path: Path) -> str:
    """The gRPC target of a unix socket. Raises INVALID_CONFIG when the path is too long for one."""
    size = len(os.fsencode(path))
    if size > _MAX_UNIX_PATH_BYTES:
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"{path} has {size} bytes, a socket's path at most {_MAX_UNIX_PATH_BYTES}; set {RUNTIME_DIR} to a shorter one",
        )
    return f"unix:{path}"


class HomeProcess:
    """Remembers the process it was made in. For what must not be used in a forked child, such as a gRPC channel."""

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    def check(self) -> None:
        """Raises RuntimeError in another process than that of the constructor."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"{self._what} was made in process {self._pid} and cannot be used in process {os.getpid()}: gRPC does "
                "not survive a fork. Start processes with the multiprocessing start method 'spawn'."
            )


_forks_forbidden = 0
_has_audit_hook = False


@contextlib.contextmanager
def forbid_forks() -> Iterator[None]:
    """Inside, forking this process raises RuntimeError; subprocess and multiprocessing's 'spawn' go on working.

    A forked child of a process that uses gRPC hangs or breaks. An exception in `os.register_at_fork` is only printed and
    the fork goes on; an audit hook is asked before the fork, and its exception stops it. Forks by native code are not
    seen here.
    """
    global _forks_forbidden, _has_audit_hook
    if not _has_audit_hook:
        sys.addaudithook(_refuse_fork)  # can never be removed, hence the counter
        _has_audit_hook = True
    _forks_forbidden += 1
    try:
        yield
    finally:
        _forks_forbidden -= 1


def _refuse_fork(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("os.fork", "os.forkpty") and _forks_forbidden:
        raise RuntimeError(
            f"process {os.getpid()} serves gRPC and cannot be forked: the child would hang. Use subprocess, or "
            "multiprocessing with the start method 'spawn'."
        )


_loop_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_loop_users = 0


@contextlib.contextmanager
def sole_loop() -> Iterator[None]:
    """Claims gRPC for the running loop; raises RuntimeError while another loop of the process has it.

    grpc.aio wakes one loop per process; with loops in several threads it loses wake-ups and fails with BlockingIOError.
    """
    global _loop, _loop_users
    running = asyncio.get_running_loop()
    with _loop_lock:
        if _loop is not None and _loop is not running:
            raise RuntimeError(
                "another event loop of this process serves gRPC already: run one loop per process, and start further "
                "servers in it or in processes of their own"
            )
        _loop, _loop_users = running, _loop_users + 1
    try:
        yield
    finally:
        with _loop_lock:
            _loop_users -= 1
            if _loop_users == 0:
                _loop = None
