"""KV aware: the earliest first token, weighing a queue against a prefix that would have to be computed again.

    (load + foreign_load) * SECONDS_PER_ACTIVATION
      + (prefix_tokens - resident_tokens) * SECONDS_PER_TOKEN + transfer_cost

A replica that holds the prefix wins until its queue is longer than the prefix takes to compute elsewhere. The load is what
the process knows and what replicas report; `resident_tokens` and `transfer_cost` are the data plane's to say. While nobody
says them every candidate computes the whole prefix, and the choice is that of the least loaded.

Where the constants come from: section `decoding` of tests/bench/README.md, the engine in float32 on one CPU core with eight
activations at a time. It computes 372 tokens of prompts a second, and gives 51.4 tokens a second to all, so that an
activation of 23 tokens, as there, adds 23 / 51.4 s to the queue. Without `transfer_cost` the choice depends on their ratio
alone: one activation more weighs as much as 166 tokens of prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

from omniflow_core.control.balancing.least_loaded import load_of
from omniflow_core.control.balancing.port import Candidate, Choice, in_turn

SECONDS_PER_ACTIVATION = 23 / 51.4
SECONDS_PER_TOKEN = 1 / 372


def choose(candidates: Sequence[Candidate], choice: Choice) -> int:
    """The one that would give the first token first, of equals the one whose turn it is."""
    count = len(candidates)
    return min(range(count), key=lambda i: (_seconds(candidates[i], choice), in_turn(i, choice, count)))


def _seconds(candidate: Candidate, choice: Choice) -> float:
    missing = max(0, choice.prefix_tokens - candidate.resident_tokens)
    return load_of(candidate) * SECONDS_PER_ACTIVATION + missing * SECONDS_PER_TOKEN + candidate.transfer_cost
