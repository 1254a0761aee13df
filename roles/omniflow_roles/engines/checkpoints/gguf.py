"""GGUF files, converted once to a folder of safetensors that loads in a moment.

    ~/.cache/omniflow/checkpoints/<name>-<sha256 of the GGUF>-<transformers version>/       float32
    ~/.cache/omniflow/checkpoints/<name>-<sha256 of the GGUF>-<transformers version>-bfloat16/
        config.json  generation_config.json  model.safetensors  tokenizer.json  tokenizer_config.json ...

transformers reads the metadata of a GGUF in Python, several times, and dequantises tensor by tensor: 27 to 33 s for a model
of 135 million parameters, against 0.6 s for the converted folder, which is mapped, not read. A role that is replaced has to
be back soon. The name says all that the content depends on, the folder appears by one rename after its files are on disk,
and a folder that does not load is made again. Where no cache can be written, the GGUF itself is loaded.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from omniflow_roles.engines.checkpoints.saved_model import LOCAL, ModelAndTokenizer, check_complete, load_saved

logger = logging.getLogger(__name__)


def cache_root() -> Path:
    """Where converted checkpoints are kept: $XDG_CACHE_HOME/omniflow/checkpoints, ~/.cache without it."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "omniflow" / "checkpoints"


def load_gguf(
    file: Path, root: Path, *, name: str, dtype: torch.dtype, has_tokenizer: bool = True
) -> ModelAndTokenizer:
    """Model and tokenizer of a GGUF file, by way of the cache under `root` where there is one."""
    folder = root / _folder_name(file, name, dtype)
    if folder.is_dir():
        try:
            return load_saved(folder, dtype)
        except Exception:
            # Whatever is wrong with the folder shows as one of a dozen types; if it is not the folder, it shows again.
            logger.warning("%s does not load and is made again", folder, exc_info=True)
            shutil.rmtree(folder, ignore_errors=True)
    loaded = convert(file, dtype=dtype, has_tokenizer=has_tokenizer)
    try:
        _save(loaded, folder)
    except OSError:
        logger.warning("the converted model cannot be kept in %s; every start converts it", root, exc_info=True)
    return loaded


def convert(file: Path, *, dtype: torch.dtype, has_tokenizer: bool = True) -> ModelAndTokenizer:
    """Model and tokenizer straight from the GGUF: slow, needs nothing but the file."""
    where = {"gguf_file": file.name, **LOCAL}
    model, info = AutoModelForCausalLM.from_pretrained(file.parent, dtype=dtype, output_loading_info=True, **where)
    check_complete(file, info)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(file.parent, **where) if has_tokenizer else None
    return _plain(model, dtype), tokenizer


def _folder_name(file: Path, name: str, dtype: torch.dtype) -> str:
    kind = "" if dtype is torch.float32 else f"-{str(dtype).removeprefix('torch.')}"
    return f"{name}-{_digest(file)}-{transformers.__version__}{kind}"


def _plain(model: Any, dtype: torch.dtype) -> Any:
    """The same weights in a model that does not remember having been quantised, which could not be saved."""
    described = {name: value for name, value in model.config.to_dict().items() if name != "quantization_config"}
    plain = AutoModelForCausalLM.from_config(type(model.config).from_dict(described), dtype=dtype)
    plain.load_state_dict(model.state_dict())
    return plain.eval()


def _save(loaded: ModelAndTokenizer, folder: Path) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        for part in loaded:
            if part is not None:
                part.save_pretrained(unfinished)
        _flush(unfinished)
        os.rename(unfinished, folder)  # fails when another process was first: then its folder is as good
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not folder.is_dir():
            raise


def _flush(folder: Path) -> None:
    """A power cut after the rename must not leave a file of the right length and the wrong content."""
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]
