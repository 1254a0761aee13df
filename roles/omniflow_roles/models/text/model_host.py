"""The models of one role process: an engine each, loaded and unloaded while others answer.

    root/                    the operator names the folder, callers only what stands in it
        smollm2/             a Hugging Face directory, or a folder with one GGUF file
        french/              a LoRA adapter

A model that is unloaded takes no new requests at once, and goes when those under way have ended.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_roles.engines.checkpoints.load import load_checkpoint
from omniflow_roles.engines.torch.compose import EngineSettings, make_engine
from omniflow_roles.engines.torch.engine import Engine
from omniflow_roles.engines.torch.linears import quantise_linears

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
INT8 = "int8"
"""int8 linears in a model of float32 on a CPU, where that is fastest, and of bfloat16 on a GPU."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(slots=True, kw_only=True)
class HostedModel:
    """A loaded model."""

    name: str
    dtype: str
    engine: Engine
    tokenizer: Any
    """A fast tokenizer of transformers."""
    vocabulary_size: int
    adapters: list[str] = field(default_factory=list)
    user_count: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def summary(self) -> dict[str, object]:
        """For people."""
        load = self.engine.load()
        return {
            "name": self.name,
            "dtype": self.dtype,
            "adapters": list(self.adapters),
            "running": load.running,
            "waiting": load.waiting,
        }


class ModelHost:
    """Belongs to one event loop."""

    def __init__(self, root: Path, settings: EngineSettings | None = None, *, device: str = "") -> None:
        """`device`: "cpu" or "cuda"; empty takes a GPU where there is one."""
        self._root = root
        self._settings = settings or EngineSettings(max_adapters=8)
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._models: dict[str, HostedModel] = {}
        self._changing = asyncio.Lock()
        """One load at a time: two would measure the same free memory."""

    @property
    def models(self) -> list[HostedModel]:
        return list(self._models.values())

    async def load(self, name: str, dtype: str = "") -> HostedModel:
        """Loads a folder of the root; one that is loaded already is given as it is.

        Raises INVALID_FIELD for a name or dtype that is none, UNKNOWN_RESOURCE for a folder that is not there,
        INVALID_CONFIG for one that cannot be served, CONFLICT for a model that is loaded in another dtype.
        """
        dtype = dtype or ("bfloat16" if self._device == "cuda" else INT8)
        if dtype not in (*DTYPES, INT8):
            raise invalid_field("request.dtype", f"{dtype!r} is none of {', '.join((*DTYPES, INT8))}")
        folder = self._folder(name)
        async with self._changing:
            known = self._models.get(name)
            if known is not None and known.dtype != dtype:
                raise OmniFlowError(Reason.CONFLICT, f"model {name!r} is loaded as {known.dtype}; unload it first")
            if known is None:
                known = await asyncio.to_thread(self._make, name, folder, dtype)
                known.engine.start()
                self._models[name] = known
            return known

    async def unload(self, name: str) -> None:
        """Takes the model away from new requests, and returns when it has gone. Raises UNKNOWN_RESOURCE."""
        model = self._find(name)
        del self._models[name]
        if model.user_count:
            model.idle.clear()
            await model.idle.wait()
        await asyncio.to_thread(model.engine.close)

    async def load_adapter(self, model: str, name: str) -> None:
        """Loads a LoRA adapter from a folder of the root onto a loaded model; raises as `LoraAdapters.load`."""
        hosted = self._find(model)
        await hosted.engine.load_adapter(name, self._folder(name))
        hosted.adapters.append(name)

    async def unload_adapter(self, model: str, name: str) -> None:
        """Raises UNKNOWN_RESOURCE, and CONFLICT while it is in use."""
        hosted = self._find(model)
        await hosted.engine.unload_adapter(name)
        hosted.adapters.remove(name)

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[HostedModel]:
        """A model that is not unloaded meanwhile; the only one for an empty name. Raises UNKNOWN_RESOURCE."""
        model = self._find(name or self._only())
        model.user_count += 1
        try:
            yield model
        finally:
            model.user_count -= 1
            if not model.user_count:
                model.idle.set()

    async def close(self) -> None:
        """Ends all engines; what is under way ends with DRAINING."""
        models, self._models = self._models, {}
        for model in models.values():
            await asyncio.to_thread(model.engine.close)

    def _make(self, name: str, folder: Path, dtype: str) -> HostedModel:
        base = torch.bfloat16 if self._device == "cuda" else torch.float32
        loaded = load_checkpoint(folder, dtype=DTYPES.get(dtype, base), device=self._device)
        if loaded.tokenizer is None:
            raise OmniFlowError(Reason.INVALID_CONFIG, f"{folder.name} has no tokenizer; put its tokenizer.json there")
        if dtype == INT8:
            quantise_linears(loaded.model)
        return HostedModel(
            name=name,
            dtype=dtype,
            engine=make_engine(loaded.model, loaded.tokenizer, self._settings),
            tokenizer=loaded.tokenizer,
            vocabulary_size=loaded.model.config.get_text_config().vocab_size,
        )

    def _find(self, name: str) -> HostedModel:
        model = self._models.get(name)
        if model is None:
            known = ", ".join(sorted(self._models)) or "none"
            raise OmniFlowError(Reason.UNKNOWN_RESOURCE, f"no model {name!r} is loaded here; loaded are: {known}")
        return model

    def _only(self) -> str:
        if len(self._models) != 1:
            known = ", ".join(sorted(self._models)) or "none"
            raise invalid_field("request.model", f"name a model; loaded are: {known}")
        return next(iter(self._models))

    def _folder(self, name: str) -> Path:
        """A folder of the root by its name; a name is no path."""
        if not _NAME.fullmatch(name):
            raise invalid_field("request", f"{name[:64]!r} is no name of a model: letters, digits, dots, dashes")
        folder = self._root / name
        if not folder.is_dir():
            raise OmniFlowError(Reason.UNKNOWN_RESOURCE, f"there is no model {name!r} among those that may be loaded")
        return folder
