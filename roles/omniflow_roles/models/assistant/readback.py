"""How much of a spoken text a recogniser gave back: the check that speech says what it should. Pure.

    said   the capital of france is paris          6 words
    heard  the cap of francis paris                the, of, paris: 3 in this order -> 0.5

Order counts (longest common subsequence), so a bag of common words does not pass for an answer; words that were heard too
much cost nothing, for they are the recogniser's inventions as often as the voice's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def words(text: str) -> list[str]:
    """Words in lower case; an apostrophe inside a word belongs to it."""
    return _WORD.findall(text.lower().replace("’", "'"))


def share_read_back(said: str, heard: str) -> float:
    """Share of the words of `said`, 0 to 1, that are in `heard` in the same order. 1.0 when nothing was said."""
    wanted = words(said)
    return _common(wanted, words(heard)) / len(wanted) if wanted else 1.0


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    """Length of the longest common subsequence; one row of the table at a time."""
    row = [0] * (len(right) + 1)
    for word in left:
        diagonal = 0
        for index, other in enumerate(right, start=1):
            above = row[index]
            row[index] = diagonal + 1 if word == other else max(above, row[index - 1])
            diagonal = above
    return row[-1]
