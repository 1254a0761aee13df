"""Bounded logs of child processes: `llm-0.log`, and `llm-0.log.1` (the newest old one) to `.N`."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import deque
from pathlib import Path


def rotate(log: Path, *, keep: int) -> None:
    """Moves a log out of the way."""
    if not log.exists():
        return
    for ordinal in range(keep, 1, -1):
        older = _old(log, ordinal - 1)
        if older.exists():
            older.replace(_old(log, ordinal))
    if keep:
        log.replace(_old(log, 1))
    else:
        log.unlink()


def cut(log: Path, *, size_bytes: int, keep: int) -> bool:
    """Rotates a log that a process has open, when it is larger than `size_bytes`; True if it was.

    The process goes on writing to the same file (it appends), so the file is copied and emptied. What it writes between
    the two is lost, which a log that floods can bear.
    """
    try:
        if log.stat().st_size <= size_bytes:
            return False
    except FileNotFoundError:
        return False
    for ordinal in range(keep, 1, -1):
        with contextlib.suppress(FileNotFoundError):
            _old(log, ordinal - 1).replace(_old(log, ordinal))
    if keep:
        with contextlib.suppress(OSError):  # a full disk is no reason to keep the log that fills it
            shutil.copyfile(log, _old(log, 1))
    os.truncate(log, 0)
    return True


def open_for_child(log: Path) -> int:
    """A descriptor that appends to the log (0600); the caller closes it."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def tail(log: Path, *, lines: int = 15, size_bytes: int = 16_384) -> str:
    """The last lines of a log, as far as `size_bytes` reach; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - size_bytes))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(deque(text.rstrip().splitlines(), maxlen=lines))


def _old(log: Path, ordinal: int) -> Path:
    return log.with_name(f"{log.name}.{ordinal}")
