"""The stages of the paper's figure 4 that are more than a step from item to item."""

from __future__ import annotations

from collections.abc import AsyncIterator

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import Json, ValueType
from omniflow_core.errors import invalid_field
from omniflow_roles.noop.items import ITEM, Item


class Parse(Interface):
    """One item for each of the `frames`, a list of "text" and "image", on the output of its kind; then how many vision
    embeddings and latents will be made of them."""

    name = "noop.parse"
    inputs = groups(item=ITEM, frames=Field(ValueType.JSON))
    outputs = {"text": ITEM, "image": ITEM, "vit_count": Field(ValueType.JSON), "vae_count": Field(ValueType.JSON)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        item = Item.of(inputs["item"])
        options = item.options(context)
        frames = inputs["frames"].value if isinstance(inputs["frames"], Json) else None
        if not isinstance(frames, list) or not all(frame in ("text", "image") for frame in frames):
            raise invalid_field("frames", 'a list of "text" and "image" is wanted')
        for ordinal, kind in enumerate(frames):
            await options.pause(context, ordinal)
            frame = item.made(context, ordinal, options, is_last=ordinal == len(frames) - 1)
            yield {kind: frame.value()}
        images = Json(frames.count("image"))
        yield {"vit_count": images, "vae_count": images}


class Generate(Interface):
    """Texts for a frame, two by default, each with the name of its item; after those of the last frame `done`."""

    name = "noop.generate"
    inputs = groups(("text", {"embedding": ITEM}), ("image", {"vit": ITEM, "vae": ITEM}))
    outputs = {"text": Field(ValueType.TEXT), "done": ITEM}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        item = Item.joined({name: inputs.all(name) for name in inputs})
        options = item.options(context, yields=2)
        for ordinal in range(options.yields):
            await options.pause(context, ordinal)
            yield {"text": item.made(context, ordinal, options).name}
        if item.is_last:
            yield {"done": item.made(context, options.yields, options).value()}


class Diffuse(Interface):
    """One item for a whole request: a count join over the completion signal, vision embeddings and latents."""

    name = "noop.diffuse"
    inputs = groups(done=ITEM, vit=ITEM, vae=ITEM, vit_count=Field(ValueType.JSON), vae_count=Field(ValueType.JSON))
    outputs = {"item": ITEM}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        item = Item.joined({name: inputs.all(name) for name in ("done", "vit", "vae")})
        return {"item": item.made(context, 0, item.options(context)).value()}
