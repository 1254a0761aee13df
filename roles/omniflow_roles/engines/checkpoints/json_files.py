"""JSON files of a checkpoint, read with a bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omniflow_roles.engines.checkpoints.findings import FindingCode, UnreadableError

MAX_BYTES = 256 << 20
"""The largest that are known, tokenizers, have some 30 MB."""


def read_object(file: Path, code: FindingCode) -> dict[str, Any]:
    """A JSON object. Raises UnreadableError with `code`."""
    if file.stat().st_size > MAX_BYTES:
        raise UnreadableError(
            code, file.name, f"is larger than {MAX_BYTES >> 20} MiB, which no such file is", "Replace it."
        )
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        raise UnreadableError(code, file.name, "is no JSON", "Copy or download the file again.") from None
    if not isinstance(found, dict):
        raise UnreadableError(code, file.name, "is no JSON object", "Copy or download the file again.")
    return found
