"""Pieces of completions as the contract's `Tokens`, for interfaces that yield them."""

from __future__ import annotations

from omniflow.values import Tokens
from omniflow_roles.engines.requests import Piece


def tokens_of(piece: Piece) -> Tokens:
    """Ids, text, and what was asked for of log-probabilities."""
    return Tokens(
        ids=piece.ids,
        text=piece.text,
        logprobs=tuple(entry.logprob for entry in piece.logprobs),
        completion=piece.completion,
        alternatives=tuple(e.top for e in piece.logprobs) if any(e.top for e in piece.logprobs) else (),
    )
