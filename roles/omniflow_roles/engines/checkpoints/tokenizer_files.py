"""The tokenizer of a checkpoint. It is read from `tokenizer.json` as it stands, by no class that a model names."""

from __future__ import annotations

from pathlib import Path

from omniflow_roles.engines.checkpoints.findings import FindingCode, Findings, UnreadableError
from omniflow_roles.engines.checkpoints.json_files import read_object

FILE = "tokenizer.json"
CONFIG = "tokenizer_config.json"

_OTHER_FORMS = ("tokenizer.model", "vocab.json", "tiktoken.model", "spiece.model")


def check_tokenizer(folder: Path, findings: Findings) -> None:
    """A missing tokenizer is a warning: token ids and embeddings can be served without, text cannot."""
    try:
        if (folder / CONFIG).is_file() and read_object(folder / CONFIG, FindingCode.BAD_TOKENIZER).get("auto_map"):
            findings.error(
                FindingCode.REMOTE_CODE,
                f"{CONFIG}: auto_map",
                "asks for Python code that comes with the tokenizer, which is never run",
                "Use a checkpoint whose tokenizer.json is all there is to its tokenizer, without auto_map.",
            )
        if (folder / FILE).is_file():
            if not isinstance(read_object(folder / FILE, FindingCode.BAD_TOKENIZER).get("model"), dict):
                findings.error(FindingCode.BAD_TOKENIZER, FILE, "describes no tokenizer", "Copy or download it again.")
            return
    except UnreadableError as problem:
        findings.unreadable(problem)
        return
    other = next((name for name in _OTHER_FORMS if (folder / name).is_file()), None)
    findings.warn(
        FindingCode.NO_TOKENIZER,
        FILE,
        f"is missing{f', and {other} is not read' if other else ''}: token ids can be served, text cannot",
        "Add the model's tokenizer.json; transformers writes it with AutoTokenizer.from_pretrained(...).save_pretrained.",
    )
