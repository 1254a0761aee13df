"""Speech without a model: codes, and sound from chunks of them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import AsyncIterator, Sequence

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import Audio, Tokens, ValueType
from omniflow_roles.noop.items import ITEM_INPUT, Item

PCM = "audio/L16;rate=16000;channels=1"

_CODES = 1 << 12


def code_of(name: str) -> int:
    """The code of an item's name: anything that another name does not have."""
    return zlib.crc32(name.encode()) % _CODES


def pcm(codes: Sequence[int], *, before: int = 0) -> bytes:
    """One 16-bit sample a code, which hangs on the code before it: the first one on `before`."""
    return struct.pack(f"<{len(codes)}h", *(code + last for last, code in zip((before, *codes), codes, strict=False)))


class Codes(Interface):
    """Codes for an item, one a yield, seven by default."""

    name = "noop.codes"
    inputs = ITEM_INPUT
    outputs = {"codes": Field(ValueType.TOKENS)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        item = Item.of(inputs["item"])
        options = item.options(context, yields=7)
        for ordinal in range(options.yields):
            await options.pause(context, ordinal)
            name = item.made(context, ordinal, options).name
            yield {"codes": Tokens((code_of(name),), name)}


class Vocoder(Interface):
    """The sound of a chunk of codes. Left context is heard, and not said again."""

    name = "noop.vocoder"
    inputs = groups(codes=Field(ValueType.TOKENS))
    outputs = {"wav": Field(ValueType.AUDIO)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        codes = [code for value in inputs.all("codes") if isinstance(value, Tokens) for code in value.ids]
        said = inputs.context_count("codes")
        return {"wav": Audio(pcm(codes[said:], before=codes[said - 1] if said else 0), PCM)}
