"""adapter_config.json: which linears are meant, with which scale, and what is refused by its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.torch.lora_config import read_adapter_config

GOOD: dict[str, Any] = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}
LINEARS = [
    f"model.layers.{layer}.{name}"
    for layer in range(12)
    for name in ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj", "mlp.down_proj")
]


def config(folder: Path, **values: Any) -> Any:
    (folder / "adapter_config.json").write_text(json.dumps({**GOOD, **values}))
    return read_adapter_config(folder)


def targeted(folder: Path, **values: Any) -> list[str]:
    return [name.removeprefix("model.layers.") for name in config(folder, **values).targeted(LINEARS)]


def test_targets_of_a_list_are_names_or_their_ends(tmp_path: Path) -> None:
    assert targeted(tmp_path) == [f"{n}.self_attn.{name}" for n in range(12) for name in ("q_proj", "v_proj")]
    assert targeted(tmp_path, target_modules=["model.layers.3.mlp.up_proj", "1.self_attn.q_proj", "proj"]) == [
        "1.self_attn.q_proj",
        "3.mlp.up_proj",
    ]


def test_targets_of_a_text_are_a_regular_expression_of_the_whole_name(tmp_path: Path) -> None:
    assert targeted(tmp_path, target_modules=r".*layers\.[12]\.mlp\.(up|down)_proj") == [
        "1.mlp.up_proj",
        "1.mlp.down_proj",
        "2.mlp.up_proj",
        "2.mlp.down_proj",
    ]
    assert targeted(tmp_path, target_modules="q_proj") == []


@pytest.mark.parametrize("value", ["all-linear", "All-Linear"])
def test_targets_of_all_linear_are_all(tmp_path: Path, value: str) -> None:
    assert config(tmp_path, target_modules=value).targeted(LINEARS) == LINEARS


def test_targets_leave_out_excluded_modules_and_other_layers(tmp_path: Path) -> None:
    assert targeted(tmp_path, exclude_modules=["v_proj"], layers_to_transform=[2, 11]) == [
        "2.self_attn.q_proj",
        "11.self_attn.q_proj",
    ]
    assert targeted(tmp_path, layers_to_transform=1) == ["1.self_attn.q_proj", "1.self_attn.v_proj"]
    assert targeted(tmp_path, layers_to_transform=[1], layers_pattern="blocks") == []
    assert targeted(
        tmp_path, layers_to_transform=[1], layers_pattern=["blocks", "layers"], exclude_modules=r".*v_proj"
    ) == ["1.self_attn.q_proj"]


def test_scale_is_alpha_over_rank_or_its_root(tmp_path: Path) -> None:
    assert config(tmp_path).scale_of(LINEARS[0]) == 2
    assert config(tmp_path, r=16, use_rslora=True).scale_of(LINEARS[0]) == 4


def test_patterns_give_ranks_and_alphas_of_their_own(tmp_path: Path) -> None:
    found = config(
        tmp_path,
        rank_pattern={"q_proj": 4, r"layers\.1\.self_attn\.v_proj": 2, "up_proj": 32},
        alpha_pattern={r"self_attn\.(q|v)_proj": 12},
    )
    assert [found.rank_of(name) for name in LINEARS[:6]] == [4, 8, 32, 8, 4, 2]
    assert [found.scale_of(name) for name in LINEARS[:6]] == [3, 1.5, 0.5, 2, 3, 6]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("peft_type", "IA3"),
        ("modules_to_save", ["lm_head"]),
        ("bias", "lora_only"),
        ("use_dora", True),
        ("lora_bias", True),
        ("layer_replication", [[0, 2]]),
        ("trainable_token_indices", [5]),
        ("target_parameters", ["experts.gate_up_proj"]),
        ("init_lora_weights", "pissa_niter_4"),
        ("r", 0),
        ("r", True),
        ("r", None),
        ("lora_alpha", "8"),
        ("lora_alpha", float("nan")),
        ("target_modules", None),
        ("target_modules", [1]),
        ("target_modules", "(q_proj"),
        ("exclude_modules", "*"),
        ("layers_to_transform", ["1"]),
        ("rank_pattern", ["q_proj"]),
        ("rank_pattern", {"q_proj": 0}),
        ("rank_pattern", {"q_[": 4}),
        ("alpha_pattern", {"q_proj": None}),
    ],
)
def test_config_that_is_not_followed_is_refused_by_its_key(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(OmniFlowError) as caught:
        config(tmp_path, **{key: value})
    assert caught.value.reason is Reason.INVALID_CONFIG
    assert f"adapter_config.json: {key}" in caught.value.message
    assert caught.value.violations[0].field.startswith(f"{tmp_path / 'adapter_config.json'}: {key}")


def test_config_that_only_says_how_it_was_trained_is_accepted(tmp_path: Path) -> None:
    trained = {"fan_in_fan_out": True, "lora_dropout": 0.5, "init_lora_weights": "gaussian", "modules_to_save": []}
    assert config(tmp_path, **trained, some_new_key=3).rank == 8


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_config_that_cannot_be_read_is_refused_by_its_file(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "adapter_config.json").write_text(content)
    with pytest.raises(OmniFlowError, match=r"adapter_config\.json") as caught:
        read_adapter_config(tmp_path)
    assert caught.value.reason is Reason.INVALID_CONFIG
