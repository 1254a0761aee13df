"""Prompt lookup: guesses what comes next from where the newest tokens stood before. No model, no tensors.

    ... the quick brown fox ... the quick  ─▶  brown fox

A guess costs a token's place in a forward, and saves a step when it is right: answers that quote their prompt gain, others
lose little.
"""

from __future__ import annotations

from collections.abc import Sequence

_SIZE = 3
"""Tokens that must agree: with two, everyday words set off wrong guesses."""


class PromptLookup:
    """An index of one sequence's runs of tokens."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        """Where the newest occurrence of a run ends, the run at the very end aside."""
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Adds tokens at the end."""
        for token in tokens:
            self._tokens.append(token)
            if len(self._tokens) > _SIZE:
                end = len(self._tokens) - 1
                self._after[tuple(self._tokens[end - _SIZE : end])] = end

    def propose(self, count: int) -> list[int]:
        """At most `count` tokens that followed the newest run when it stood before; none when it is new."""
        end = self._after.get(tuple(self._tokens[-_SIZE:]))
        return self._tokens[end : end + count] if end is not None else []
