"""Resume tokens: MACs over (tenant, call, expiry). Nothing is stored for them; another process with the key accepts them."""

from __future__ import annotations

import base64
import hashlib
import hmac

from omniflow_core.errors import OmniFlowError, Reason

_MAC_BYTES = 16


class ResumeTokens:
    """Issues and checks tokens under one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, *, tenant: str, call_id: str, expire_unix_s: int) -> str:
        """A token for one call. The tenant is in the MAC, not in the text."""
        text = f"{call_id}.{expire_unix_s}"
        return f"{text}.{base64.urlsafe_b64encode(self._mac(tenant, text)).rstrip(b'=').decode()}"

    def check(self, token: str, *, tenant: str, now_unix_s: float) -> str:
        """The call of a token. Raises INVALID_RESUME_TOKEN, which does not say what is wrong with it."""
        text, _, mac = token.rpartition(".")
        call_id, _, expiry = text.rpartition(".")
        expected = base64.urlsafe_b64encode(self._mac(tenant, text)).rstrip(b"=")
        is_valid = hmac.compare_digest(expected, mac.encode(errors="replace"))
        if not is_valid or not expiry.isdigit() or int(expiry) < now_unix_s:
            raise OmniFlowError(Reason.INVALID_RESUME_TOKEN, "The resume token is not valid, or has expired.")
        return call_id

    def _mac(self, tenant: str, text: str) -> bytes:
        message = b"omniflow-resume\0" + len(tenant).to_bytes(4, "big") + tenant.encode() + text.encode()
        return hmac.digest(self._key, message, hashlib.sha256)[:_MAC_BYTES]
