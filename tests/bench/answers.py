"""What decodes prompts, as the decoding bench sees it: prompts in, tokens and the times at which they came out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

ENGINE_FLOAT32, ENGINE_BFLOAT16, ENGINE_INT8 = "engine float32", "engine bfloat16", "engine int8"
GENERATE_FLOAT32, GENERATE_BFLOAT16 = "generate() float32", "generate() bfloat16"
LLAMA = "llama.cpp Q8_0"
LLAMA_ENVIRONMENT = "OMNIFLOW_ENVIRONMENTS_LLAMA"
"""Names the interpreter of an environment with llama-cpp-python."""

Prompt = Sequence[int]
"""Token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """To prompts that were given together; one entry a prompt."""

    ids: Sequence[Sequence[int]]
    times_s: Sequence[Sequence[float]]
    """When each token came, from when the prompts were given."""

    @property
    def first_s(self) -> float:
        """Until every prompt had its first token."""
        return max(times[0] for times in self.times_s)

    @property
    def end_s(self) -> float:
        """Until the last token."""
        return max(times[-1] for times in self.times_s)

    @property
    def later_count(self) -> int:
        """Tokens that came after `first_s`."""
        return sum(time_s > self.first_s for times in self.times_s for time_s in times)


class Decoder(Protocol):
    """Decodes greedily."""

    @property
    def step_bytes(self) -> int:
        """Weights that a step reads."""

    @property
    def processes(self) -> Mapping[str, int]:
        """Its processes beside this one: identifiers by name."""

    async def decode(self, prompts: Sequence[Prompt], tokens: int) -> Answers:
        """Exactly so many tokens after each of the prompts, which have one length."""


class Server(Decoder, Protocol):
    """One that takes prompts at any time."""

    @property
    def drawn_count(self) -> int:
        """Tokens so far."""

    async def first_s(self, prompt: Prompt) -> float:
        """Time to the first token after the prompt, and only."""

    def decoding(self, prompts: Sequence[Prompt]) -> AbstractAsyncContextManager[None]:
        """Long completions of the prompts are under way inside, past their first tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A device, and what decodes one model there."""

    label: str
    """Begins the names of its contestants; may be empty."""
    decoders: Mapping[str, Decoder]
    baseline: str
    """The decoder that the others are compared with."""
    servers: Mapping[str, Server]
    """Of the decoders, those whose first tokens are looked at under a load."""
    read: Callable[[], tuple[int, float]]
    """Reads a large tensor: bytes, and the seconds that it took."""
    tokens: Mapping[int, int]
    """Tokens after each prompt, by batch size."""
    vocabulary: range
    """Ids that prompts are made of."""
    sample: Prompt = ()
    """A prompt with a likely continuation, on which the decoders should agree; empty where there is none."""
    notes: Sequence[str] = ()


def common_count(ids: Sequence[int], others: Sequence[int]) -> int:
    """Tokens before the first that differs."""
    pairs = zip(ids, others, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(ids), len(others)))
