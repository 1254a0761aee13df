"""Resume tokens: only what was issued is accepted, and nobody learns why another is not."""

from __future__ import annotations

from typing import Any

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.resume_tokens import ResumeTokens

TOKENS = ResumeTokens(b"k" * 32)


def issue(**fields: object) -> str:
    return TOKENS.issue(**{"tenant": "acme", "call_id": "c1", "expire_unix_s": 1_000, **fields})  # type: ignore[arg-type]


def check(token: str, *, tenant: str = "acme", now_unix_s: float = 500.0, tokens: ResumeTokens = TOKENS) -> str:
    return tokens.check(token, tenant=tenant, now_unix_s=now_unix_s)


def test_token_names_its_call() -> None:
    assert check(issue()) == "c1"
    assert check(issue(call_id="a.b.c")) == "a.b.c"
    assert check(issue(), now_unix_s=1_000.0) == "c1"
    assert check(issue(), tokens=ResumeTokens(b"k" * 32)) == "c1", "another process with the key accepts it"


def test_token_does_not_show_its_tenant() -> None:
    assert "acme" not in issue()


TAMPERED: dict[str, tuple[str, dict[str, Any]]] = {
    "expired": (issue(), {"now_unix_s": 1_000.5}),
    "other tenant": (issue(), {"tenant": "other"}),
    "tenant that swallows a byte": (issue(tenant="ac"), {"tenant": "a"}),
    "other key": (issue(), {"tokens": ResumeTokens(b"x" * 32)}),
    "other call": (issue().replace("c1", "c2"), {}),
    "longer life": (issue().replace("1000", "9999"), {}),
    "cut": (issue()[:-1], {}),
    "longer": (issue() + "A", {}),
    "without a mac": (issue().rpartition(".")[0], {}),
    "empty mac": (issue().rpartition(".")[0] + ".", {}),
    "empty": ("", {}),
    "dots": ("...", {}),
    "not ascii": ("c1.1000.é²", {}),
    "swapped mac": (f"{issue(call_id='c2').rpartition('.')[0]}.{issue().rpartition('.')[2]}", {}),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_token_that_was_not_issued_is_refused_without_a_hint(case: str) -> None:
    token, options = TAMPERED[case]
    with pytest.raises(OmniFlowError) as caught:
        check(token, **options)
    assert caught.value.reason is Reason.INVALID_RESUME_TOKEN
    assert caught.value.message == "The resume token is not valid, or has expired."


def test_every_changed_character_is_noticed() -> None:
    token = issue()
    for i, character in enumerate(token):
        changed = token[:i] + ("x" if character != "x" else "y") + token[i + 1 :]
        if i == len(token) - 1:
            continue  # the last base64 digit holds bits that no byte uses
        with pytest.raises(OmniFlowError):
            check(changed)
