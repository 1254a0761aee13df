"""What a path on the disk is as a model, and whether the engine loads it. Only headers and JSON are read.

    directory with adapter_config.json  → LoRA adapter
    directory with config.json          → Hugging Face directory, unless its only weights are one .gguf
    directory with exactly one .gguf, or the file itself → GGUF

Nothing is unpickled, no code of a model is imported, nothing is downloaded.
"""

from __future__ import annotations

from pathlib import Path

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.checkpoints import model_config
from omniflow_roles.engines.checkpoints.findings import FindingCode, Findings
from omniflow_roles.engines.checkpoints.gguf_file import inspect_gguf
from omniflow_roles.engines.checkpoints.hugging_face import inspect_directory
from omniflow_roles.engines.checkpoints.lora_adapter import inspect_adapter
from omniflow_roles.engines.checkpoints.report import ModelKind, ModelReport
from omniflow_roles.engines.checkpoints.unused_files import PICKLE_FIX, PICKLE_REASON, is_pickle
from omniflow_roles.engines.torch.lora_config import CONFIG as ADAPTER_CONFIG

_SUFFIX = ".gguf"


def inspect_model(path: Path) -> ModelReport:
    """The report of a directory or file; a broken or strange one has a report too, whose findings say why.

    Raises INVALID_CONFIG when there is nothing at the path, or it cannot be read.
    """
    try:
        if path.is_dir():
            return _inspect_directory(path)
        if path.is_file():
            return _inspect_file(path)
    except OSError as problem:
        raise OmniFlowError(
            Reason.INVALID_CONFIG, f"{problem.filename or path} cannot be read: {problem.strerror}"
        ) from problem
    raise OmniFlowError(Reason.INVALID_CONFIG, f"there is no file or directory {path}")


def gguf_of(path: Path) -> Path:
    """The .gguf file that a report of kind GGUF is about: the path itself, or the only one in the directory."""
    return path if path.is_file() else _ggufs(path)[0]


def _inspect_directory(folder: Path) -> ModelReport:
    if (folder / ADAPTER_CONFIG).is_file():
        return inspect_adapter(folder)
    ggufs = _ggufs(folder)
    has_safetensors = any(file.suffix == ".safetensors" for file in folder.iterdir())
    if ggufs and not has_safetensors:
        return inspect_gguf(ggufs[0]) if len(ggufs) == 1 else _ambiguous(folder, ggufs)
    if (folder / model_config.FILE).is_file():
        return inspect_directory(folder)
    pickles = sorted(file.name for file in folder.iterdir() if is_pickle(file))
    if pickles and not has_safetensors:
        return _unknown(folder, FindingCode.PICKLE_WEIGHTS, pickles[0], PICKLE_REASON, PICKLE_FIX)
    return _unknown(
        folder,
        FindingCode.NOT_A_MODEL,
        folder.name,
        f"holds no {model_config.FILE}, no {ADAPTER_CONFIG} and no {_SUFFIX} file",
        "Name the directory that holds the model's files themselves.",
    )


def _inspect_file(file: Path) -> ModelReport:
    if file.suffix == _SUFFIX:
        return inspect_gguf(file)
    if is_pickle(file):
        return _unknown(file, FindingCode.PICKLE_WEIGHTS, file.name, PICKLE_REASON, PICKLE_FIX)
    return _unknown(
        file,
        FindingCode.NOT_A_MODEL,
        file.name,
        f"is no {_SUFFIX} file",
        "Name the directory of a Hugging Face model, not a file of it.",
    )


def _ggufs(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix == _SUFFIX and file.is_file())


def _ambiguous(folder: Path, ggufs: list[Path]) -> ModelReport:
    names = ", ".join(file.name for file in ggufs)
    return _unknown(
        folder, FindingCode.AMBIGUOUS, folder.name, f"holds {len(ggufs)} models: {names}", "Name one of the files."
    )


def _unknown(path: Path, code: FindingCode, where: str, message: str, fix: str) -> ModelReport:
    findings = Findings()
    findings.error(code, where, message, fix)
    return ModelReport(path=str(path), kind=ModelKind.UNKNOWN, findings=findings.in_order())
