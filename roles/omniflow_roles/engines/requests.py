"""What is asked of an engine, and what it gives back, piece by piece. No tensors of a device, no threads.

request   prompt ids, how to draw, for whom          n completions of one prompt are one request
piece     of one completion: ids, text, why it ended
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from omniflow_roles.engines.sampling.plan import SamplingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSpan:
    """Positions of the prompt whose embeddings come from elsewhere: an image's patches, a sound's frames."""

    start: int
    embeddings: Any
    """[positions, hidden], a torch tensor of any float dtype."""
    content: Sequence[int] = ()
    """Content ids of the positions, one each: equal ids stand for equal embeddings, and share their keys and values.
    Without them nothing after the span is shared with other requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A prompt and how to go on from it."""

    prompt: tuple[int, ...]
    """Token ids; anything within embedded spans."""
    plan: SamplingPlan
    spans: tuple[EmbeddedSpan, ...] = ()
    adapter: str = ""
    """Name of a loaded LoRA adapter; empty for the plain model."""
    tenant: str = ""
    """Prefixes are shared, and work is shared out fairly, by tenant."""
    priority: int = 0
    """Higher first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """Natural logarithm of a token's probability under the model itself, before temperature and filters."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """The most likely tokens at its place, the likeliest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What a completion has gained. The last one of each completion has a finish reason."""

    completion: int = 0
    ids: tuple[int, ...] = ()
    text: str = ""
    """Whole characters only; joined, the pieces are the completion's text."""
    logprobs: tuple[TokenLogprob, ...] = field(default=())
    """One for each of `ids`, when they were asked for."""
    finish_reason: str = ""
    """"stop" by an end token, a stop text or a constraint that is fulfilled; "length" at `max_tokens`."""
    drawn_count: int = 0
    """Tokens drawn for it so far, end tokens and what spelt a stop text included."""
    cached_count: int = 0
    """Tokens of the prompt whose keys and values were there already; said with the last piece."""
