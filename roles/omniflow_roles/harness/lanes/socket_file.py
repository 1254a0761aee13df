"""The file of a lane's socket: made private, and removed by the process that made it only."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path


class SocketFile:
    """A path from which an earlier life's socket is removed, and later this one's. Call `bound` when it is there."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path = path
        self._inode = 0
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()

    def bound(self) -> None:
        """The path is this process's now."""
        self._inode = self._path.lstat().st_ino

    def remove(self) -> None:
        """Leaves the socket of a later life alone."""
        with contextlib.suppress(FileNotFoundError):
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()
