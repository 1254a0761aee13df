"""Model and tokenizer of a directory as `save_pretrained` writes it, by transformers' own classes.

Safetensors only, no remote code, no network. The tokenizer is `tokenizer.json` as it stands, by no class that the model
names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.checkpoints import tokenizer_files

LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}

ModelAndTokenizer = tuple[Any, PreTrainedTokenizerFast | None]
"""The model is a transformers.PreTrainedModel, for which it ships no usable types; a tokenizer may be missing."""


def load_saved(folder: Path, dtype: torch.dtype) -> ModelAndTokenizer:
    """Model, in eval mode on the CPU, and tokenizer.

    Raises INVALID_CONFIG when weights are missing or of the wrong shape, which transformers would draw at random.
    """
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True, **LOCAL
    )
    check_complete(folder, info)
    has_tokenizer = (folder / tokenizer_files.FILE).is_file()
    return model.eval(), PreTrainedTokenizerFast.from_pretrained(folder, **LOCAL) if has_tokenizer else None


def check_complete(path: Path, info: dict[str, Any]) -> None:
    """Raises INVALID_CONFIG unless every weight of the model came from the checkpoint. `info` is what transformers says
    of the loading."""
    wrong = sorted({*info["missing_keys"], *(key[0] for key in info["mismatched_keys"])})
    if wrong:
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"{path} lacks weights of its model, or has them in another shape: {', '.join(wrong[:3])}"
            + (f" and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""),
        )
