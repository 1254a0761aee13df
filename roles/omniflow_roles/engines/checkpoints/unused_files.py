"""Files of weights that lie in a checkpoint's directory and are not loaded; and what is said when none is loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from omniflow_roles.engines.checkpoints.findings import FindingCode, Findings, and_more

PICKLE_REASON = "is a pickle, which can run any code when it is loaded; weights in that form are refused"
PICKLE_FIX = (
    "Convert it where its code can do no harm: load it with transformers in a sandbox and call save_pretrained(folder), "
    "which writes safetensors."
)

_PICKLES = frozenset({".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"})
_TRAINING_STATE = frozenset({"optimizer.pt", "rng_state.pth", "scheduler.pt", "training_args.bin"})
_SHARD = re.compile(r".*-\d+-of-\d+\.safetensors")


def is_pickle(file: Path) -> bool:
    """Whether a file's name says that it holds weights as a pickle, or as an archive of pickles."""
    return file.suffix in _PICKLES and file.name not in _TRAINING_STATE


def report_unused(folder: Path, loaded: Sequence[str], findings: Findings, *, single: str, index: str) -> None:
    """Adds what the files beside `loaded` mean. `single` and `index` are the names that are looked for."""
    others = sorted(file for file in folder.iterdir() if file.is_file() and file.name not in loaded)
    pickles = [file.name for file in others if is_pickle(file)]
    safetensors = [file.name for file in others if file.suffix == ".safetensors"]
    if not loaded:
        if not (folder / index).is_file():
            _report_none(folder, pickles, safetensors, findings, single=single, index=index)
        return
    for name in safetensors:
        if single not in loaded and _SHARD.fullmatch(name):
            findings.error(
                FindingCode.STRAY_SHARD,
                name,
                f"is a shard that {index} does not name",
                "Remove it if it is left over from another version; otherwise the index is: write it again.",
            )
        else:
            findings.warn(FindingCode.UNUSED_FILE, name, "is not loaded", "Remove it if nothing else needs it.")
    if single in loaded and (folder / index).is_file():
        findings.warn(
            FindingCode.UNUSED_FILE, index, f"is not read, for there is a {single}", "Remove the one that is wrong."
        )
    if pickles:
        findings.warn(
            FindingCode.PICKLE_WEIGHTS,
            pickles[0],
            f"is a pickle, and is not loaded: the safetensors are{and_more(pickles)}",
            "Remove it: whoever unpickles it runs whatever code it holds.",
        )


def _report_none(
    folder: Path, pickles: Sequence[str], safetensors: Sequence[str], findings: Findings, *, single: str, index: str
) -> None:
    if pickles and not safetensors:
        findings.error(FindingCode.PICKLE_WEIGHTS, pickles[0], PICKLE_REASON, PICKLE_FIX)
        return
    here = f"; {safetensors[0]} is here" if safetensors else ""
    findings.error(
        FindingCode.NO_WEIGHTS,
        folder.name,
        f"holds neither {single} nor {index}{here}",
        f"Call it {single} if it holds the whole model." if safetensors else "Copy or download the checkpoint again.",
    )
