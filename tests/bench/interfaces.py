"""The interfaces of the engine bench, both in one role process and over one model.

    bench.llm       the assistant's language model, which notes when its first yield came
    bench.direct    drives `bench.llm` on this very loop, and answers with the times of its yields

Two processes with a model each would differ by more than what is looked for: where the kernel puts the weights makes some
per cent of their speed, for as long as the process lives.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import ClassVar

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, Sampling, groups
from omniflow.values import Json, Tokens, ValueType
from omniflow_roles.models.assistant.llm import Llm


class SharedLlm(Llm):
    """The language model, where `Direct` finds it."""

    name = "bench.llm"
    loaded: ClassVar[SharedLlm]
    first_s: float = 0.0
    """Time from the start of the newest run to its first yield."""

    async def setup(self) -> None:
        await super().setup()
        SharedLlm.loaded = self

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        started_s, is_first = time.perf_counter(), True
        async with aclosing(super().run(inputs, context)) as running:  # type: ignore[type-var]
            async for outputs in running:
                if is_first:
                    self.first_s, is_first = time.perf_counter() - started_s, False
                yield outputs


class Direct(Interface):
    """One greedy answer to `text` of at most `max_tokens`, without the platform between the interface and the clock.

    Gives `times_s`, when each yield came; `end_s`, when the run ended, both in seconds from its start; and the token `ids`.
    Without a `text` nothing runs, and `first_s` of the newest run is given.
    """

    name = "bench.direct"
    inputs = groups(request=Field(ValueType.JSON))
    outputs: ClassVar = {"answer": Field(ValueType.JSON)}

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        request = inputs["request"]
        assert isinstance(request, Json)
        llm = SharedLlm.loaded
        if "text" not in request.value:
            return {"answer": Json({"first_s": llm.first_s})}
        text, max_tokens = request.value["text"], int(request.value["max_tokens"])
        inner = Context(
            call_id=context.call_id,
            activation_id=context.activation_id,
            node=context.node,
            sampling=Sampling(temperature=0.0, max_tokens=max_tokens),
        )
        times_s: list[float] = []
        ids: list[int] = []
        started_s = time.perf_counter()
        async with aclosing(llm.run(Inputs("typed", {"text": (text,)}), inner)) as running:  # type: ignore[type-var]
            async for outputs in running:
                times_s.append(time.perf_counter() - started_s)
                tokens = outputs.get("tokens")
                if isinstance(tokens, Tokens):
                    ids.extend(tokens.ids)
        return {"answer": Json({"times_s": times_s, "end_s": time.perf_counter() - started_s, "ids": ids})}
