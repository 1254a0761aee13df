"""What a scheduler may ask of a value: how much it counts, and whether two yields are the same. It never looks further."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

from omniflow.values import Json
from omniflow_server.control.carried import CarriedValue


def count_of(value: object) -> int | None:
    """The whole number that a JSON value holds; None for anything else. Numbers come as doubles."""
    native = value.native if isinstance(value, CarriedValue) else None
    number = native.value if isinstance(native, Json) else None
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return int(number) if math.isfinite(number) and number == int(number) else None


def digest_of(fields: Mapping[str, object]) -> bytes:
    """16 bytes over the fields of a yield. A payload that another process keeps counts with its size alone."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(fields):
        value = fields[name]
        assert isinstance(value, CarriedValue)
        message = value.split()[0] if value.is_remote else value.message
        content = message.SerializeToString(deterministic=True)
        digest.update(f"{name}\0{len(content)}\0{value.stored_bytes}\0".encode() + content)
    return digest.digest()
