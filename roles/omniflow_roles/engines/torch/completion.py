"""One completion as the engine sees it: its tokens, the text that they spell, and whether it has come to its end.

    drawn   "Hel" "lo" " wor" "ST" "OP" ...        stop text "STOP"
    pieces  "Hel" "lo" " wor"  -    end            what may be the beginning of a stop text is held back

Tokens that spell a stop text, and end tokens, are counted and not given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from omniflow_roles.engines.requests import GenerationRequest, Piece, TokenLogprob
from omniflow_roles.engines.text.stop_texts import StopTexts

if TYPE_CHECKING:
    from omniflow_roles.engines.sampling.constraints import Constraint

Decode = Callable[[int], str]
"""From the completion's tokens, in order, to their text; "" while a character is incomplete."""


class Completion:
    """State of one sequence outside of its pages. Belongs to the engine's thread."""

    def __init__(
        self,
        *,
        sequence_id: int,
        index: int,
        request: GenerationRequest,
        draw_key: int,
        decode: Decode,
        flush: Callable[[], str],
        end_token_ids: frozenset[int],
        constraint: Constraint | None,
    ) -> None:
        self.sequence_id = sequence_id
        self.index = index
        self.request = request
        self.draw_key = draw_key
        self.constraint = constraint
        self.tokens: list[int] = list(request.prompt)
        """The prompt, and what was drawn and committed."""
        self.drawn_count = 0
        self.finish_reason = ""
        self._decode = decode
        self._flush = flush
        self._ends = end_token_ids | frozenset(request.plan.stop_token_ids)
        self._stops = StopTexts(request.plan.stop)
        self._held: list[int] = []
        self._held_logprobs: list[TokenLogprob] = []

    @property
    def has_ended(self) -> bool:
        return bool(self.finish_reason)

    def take(self, token: int, logprob: TokenLogprob | None) -> Piece | None:
        """Takes a drawn token in. Gives what it completes; None while that is nothing."""
        self.tokens.append(token)
        self.drawn_count += 1
        if token in self._ends:
            return self._end("stop")
        if self.constraint is not None:
            self.constraint.advance(token)
        self._held.append(token)
        if logprob is not None:
            self._held_logprobs.append(logprob)
        text = self._stops.push(self._decode(token))
        if self._stops.has_stopped:
            self._held.clear()
            self._held_logprobs.clear()
            self.finish_reason = "stop"
            return self._piece(text)
        if self.constraint is not None and self.constraint.is_finished:
            return self._end("stop", text)
        if self.drawn_count >= self.request.plan.max_tokens:
            return self._end("length", text)
        if self._stops.is_holding:
            return Piece(completion=self.index, text=text, drawn_count=self.drawn_count) if text else None
        return self._piece(text)

    def _end(self, reason: str, text: str = "") -> Piece:
        """The last piece: what was held back belongs to the completion after all."""
        self.finish_reason = reason
        text += self._stops.push(self._flush())
        if self._stops.has_stopped:
            self.finish_reason = "stop"
            self._held.clear()
            self._held_logprobs.clear()
        return self._piece(text + self._stops.flush())

    def _piece(self, text: str) -> Piece:
        ids, self._held = tuple(self._held), []
        logprobs, self._held_logprobs = tuple(self._held_logprobs), []
        return Piece(
            completion=self.index,
            ids=ids,
            text=text,
            logprobs=logprobs,
            finish_reason=self.finish_reason,
            drawn_count=self.drawn_count,
        )
