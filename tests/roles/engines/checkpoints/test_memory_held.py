"""The memory that `omniflow model check` foretells, against what a loaded model holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omniflow_roles.engines.checkpoints.memory import LoadDtype

torch = pytest.importorskip("torch", reason="the engine runs in the assistant environment")

from transformers import AutoModelForCausalLM  # noqa: E402

from omniflow_roles.engines.checkpoints.load import load_checkpoint  # noqa: E402
from omniflow_roles.engines.torch.linears import quantise_linears  # noqa: E402
from tests.roles.engines.torch.tiny import CONFIGS  # noqa: E402

pytestmark = pytest.mark.assistant


def held_bytes(model: Any) -> int:
    """Of all parameters and buffers, shared ones once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))


@pytest.mark.parametrize("dtype", LoadDtype)
@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3_moe", "deepseek_v2"])
def test_weights_take_what_was_foretold(kind: str, is_tied: bool, dtype: LoadDtype, tmp_path: Path) -> None:
    config = CONFIGS[kind]()
    config.tie_word_embeddings = is_tied
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path)
    loaded = load_checkpoint(tmp_path, dtype=getattr(torch, dtype.floats))
    if dtype.is_int8:
        quantise_linears(loaded.model)
    need = loaded.report.memory(dtype)
    assert need is not None
    assert need.weight_bytes == pytest.approx(held_bytes(loaded.model), rel=0.02)
