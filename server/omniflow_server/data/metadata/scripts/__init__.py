"""The scripts of the store, one file each, and how they are put together.

A script says in its first line which files come before it (`-- uses: lives replicas`). Servers know a script by the digest
of its text, so the text never holds values: a server keeps every text that it was ever given.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

_USES = "-- uses:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One script as the server gets it."""

    name: str
    text: bytes
    digest: bytes
    """By which it is called."""


@functools.cache
def all_scripts() -> Mapping[str, Script]:
    """Every script by the name of its file."""
    files = {
        file.name.removesuffix(".lua"): file.read_text(encoding="utf-8")
        for file in resources.files(__name__).iterdir()
        if file.name.endswith(".lua")
    }
    return {name: _script(name, files) for name, text in files.items() if text.startswith(_USES)}


def _script(name: str, files: Mapping[str, str]) -> Script:
    uses = files[name].partition("\n")[0].removeprefix(_USES).split()
    text = "\n".join((*(files[used] for used in uses), files[name])).encode()
    digest = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
    return Script(name=name, text=text, digest=digest)
