"""Generation with the models of a process, and the models themselves: two interfaces over one `ModelHost`.

    text.generate   {"prompt": "Once"} | {"messages": [...]} | {"tokens": [...]}, "model", "adapter"     ─▶ tokens
    text.models     {"load": "smollm2", "dtype": "int8"} | {"unload": ...} | {}                          ─▶ what is loaded

Which models there are is the operator's choice: OMNIFLOW_MODEL_ROOT names the folder that they stand in, OMNIFLOW_MODELS
those that are loaded at start, with commas between them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import Json, ValueType
from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_roles.engines.requests import GenerationRequest
from omniflow_roles.engines.sampling.plan import SamplingPlan, plan_sampling
from omniflow_roles.engines.tokens import tokens_of

if TYPE_CHECKING:
    from omniflow_roles.models.text.model_host import HostedModel, ModelHost

ROOT_VARIABLE = "OMNIFLOW_MODEL_ROOT"
MODELS_VARIABLE = "OMNIFLOW_MODELS"
DEFAULTS = SamplingPlan(max_tokens=256, temperature=1.0)
"""What the field's servers do without parameters: draw from the model as it is."""

_REQUEST = "call.inputs[request]"
_PROMPTS = ("prompt", "messages", "tokens")


class _Shared:
    """The host of this process; the first interface that is set up makes it."""

    host: ModelHost | None = None

    @classmethod
    async def get(cls) -> ModelHost:
        if cls.host is None:
            root = os.environ.get(ROOT_VARIABLE)
            if not root:
                raise OmniFlowError(Reason.INVALID_CONFIG, f"set {ROOT_VARIABLE} to the folder that models stand in")
            cls.host = await asyncio.to_thread(_make_host, Path(root))
        return cls.host


def _make_host(root: Path) -> ModelHost:
    from omniflow_roles.models.text.model_host import ModelHost

    return ModelHost(root)


class Generate(Interface):
    """A request -> `tokens` as they are drawn, several completions told apart by their number.

    The request is a JSON object with one of `prompt` (text), `messages` (a chat: objects with role and content) and
    `tokens` (ids); `model` (may be left out when one is loaded) and `adapter`. Sampling parameters are the call's. Raises
    INVALID_FIELD for a request that is none, UNKNOWN_RESOURCE for a model or adapter that is not loaded.
    """

    name = "text.generate"
    inputs = groups(request=Field(ValueType.JSON))
    outputs = {"tokens": Field(ValueType.TOKENS)}
    max_concurrency = 256

    async def setup(self) -> None:
        self._host = await _Shared.get()
        for name in filter(None, os.environ.get(MODELS_VARIABLE, "").split(",")):
            await self._host.load(name.strip())

    async def teardown(self) -> None:
        await self._host.close()
        _Shared.host = None

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        request = _object(inputs)
        async with self._host.use(_text(request, "model")) as model:
            plan = plan_sampling(context.sampling, vocabulary_size=model.vocabulary_size, defaults=DEFAULTS)
            prompt = await asyncio.to_thread(_encode, request, model)
            context.usage.input_tokens += len(prompt)
            generation = GenerationRequest(
                prompt=prompt,
                plan=plan,
                adapter=_text(request, "adapter"),
                tenant=context.tenant,
                priority=context.priority,
            )
            drawn = [0] * plan.completions
            reasons = [""] * plan.completions
            async with aclosing(model.engine.generate(generation)) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    context.usage.output_tokens += piece.drawn_count - drawn[piece.completion]
                    drawn[piece.completion] = piece.drawn_count
                    reasons[piece.completion] = piece.finish_reason
                    if piece.completion == 0:
                        context.usage.cached_input_tokens += piece.cached_count
                    if piece.ids or piece.text:
                        yield {"tokens": tokens_of(piece)}
            context.finish_reason = "length" if "length" in reasons else "stop"


class Models(Interface):
    """Loads and unloads models and adapters, and lists what is loaded: a request -> `answer`.

    The request is a JSON object: `{"load": NAME, "dtype": DTYPE}`, `{"unload": NAME}`, `{"load_adapter": NAME, "model":
    NAME}`, `{"unload_adapter": NAME, "model": NAME}`, or `{}`. The answer is `{"models": [...]}` after it was carried out.
    """

    name = "text.models"
    inputs = groups(request=Field(ValueType.JSON))
    outputs = {"answer": Field(ValueType.JSON)}
    max_concurrency = 16

    async def setup(self) -> None:
        self._host = await _Shared.get()

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        request = _object(inputs)
        known = {"load", "unload", "load_adapter", "unload_adapter"}
        asked = known & request.keys()
        unknown = sorted(request.keys() - known - {"model", "dtype"})
        if unknown or len(asked) > 1:
            what = (
                f"{unknown[0]!r} is unknown"
                if unknown
                else f"{' and '.join(sorted(asked))} are too much for one request"
            )
            raise invalid_field(_REQUEST, f"{what}; give one of {', '.join(sorted(known))}")
        if "load" in asked:
            await self._host.load(_text(request, "load"), _text(request, "dtype"))
        elif "unload" in asked:
            await self._host.unload(_text(request, "unload"))
        elif "load_adapter" in asked:
            await self._host.load_adapter(_text(request, "model"), _text(request, "load_adapter"))
        elif "unload_adapter" in asked:
            await self._host.unload_adapter(_text(request, "model"), _text(request, "unload_adapter"))
        return {"answer": Json({"models": [model.summary() for model in self._host.models]})}


def _object(inputs: Inputs) -> Mapping[str, Any]:
    value = inputs["request"]
    assert isinstance(value, Json)
    if not isinstance(value.value, Mapping):
        raise invalid_field(_REQUEST, "a JSON object is needed")
    return value.value


def _text(request: Mapping[str, Any], key: str) -> str:
    value = request.get(key, "")
    if not isinstance(value, str):
        raise invalid_field(f"{_REQUEST}.{key}", "a text is needed")
    return value


def _encode(request: Mapping[str, Any], model: HostedModel) -> tuple[int, ...]:
    """Token ids of whichever form of prompt the request has."""
    given = [key for key in _PROMPTS if key in request]
    if len(given) != 1:
        raise invalid_field(_REQUEST, f"give one of {', '.join(_PROMPTS)}, not {' and '.join(given) or 'none of them'}")
    key, value = given[0], request[given[0]]
    if key == "tokens":
        if not isinstance(value, list) or not all(isinstance(token, int) for token in value):
            raise invalid_field(f"{_REQUEST}.tokens", "a list of token ids is needed")
        return tuple(value)
    if key == "prompt":
        return tuple(model.tokenizer(_text(request, "prompt"))["input_ids"])
    return _chat(value, model)


def _chat(messages: Any, model: HostedModel) -> tuple[int, ...]:
    path = f"{_REQUEST}.messages"
    if not isinstance(messages, list) or not messages:
        raise invalid_field(path, "a list of messages is needed")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not all(isinstance(message.get(k), str) for k in ("role", "content")):
            raise invalid_field(f"{path}[{index}]", "a message has a role and a content, both texts")
    if not model.tokenizer.chat_template:
        raise invalid_field(path, f"model {model.name!r} has no chat template; give a prompt")
    control = set(model.tokenizer.get_added_vocab())
    for index, message in enumerate(messages):
        if any(marker in message["content"] for marker in control):
            raise invalid_field(f"{path}[{index}].content", "it holds a control marker of the model")
    try:
        encoded = model.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
    except Exception as error:  # templates raise whatever they like, about roles for one
        raise invalid_field(path, f"the model's chat template refuses them: {error}") from None
    return tuple(encoded["input_ids"])
