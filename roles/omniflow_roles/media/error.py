"""What the codecs raise."""

from __future__ import annotations


class MediaError(ValueError):
    """Bytes that are not the media they should be. The message is written for the caller who sent them."""
