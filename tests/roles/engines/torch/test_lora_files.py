"""Adapter directories: what is read, and that what does not fit the model is refused by file and tensor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError, Reason

torch = pytest.importorskip("torch", reason="the engine runs in the assistant environment")

from safetensors.torch import load_file, save_file  # noqa: E402

from omniflow_roles.engines.torch.lora_files import LoraMatrices, read_adapter  # noqa: E402
from tests.roles.engines.torch.adapters import write_adapter, write_config  # noqa: E402

pytestmark = pytest.mark.assistant

Q, V, UP = "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj", "model.layers.0.mlp.up_proj"
LINEARS = {Q: (16, 24), V: (16, 8), UP: (16, 32)}
KEY = f"base_model.model.{Q}.lora_A.weight"
Tensors = dict[str, torch.Tensor]


def read(folder: Path) -> dict[str, LoraMatrices]:
    return read_adapter(folder, LINEARS, max_rank=8)


def refused(folder: Path) -> str:
    with pytest.raises(OmniFlowError) as caught:
        read(folder)
    assert caught.value.reason is Reason.INVALID_CONFIG
    return caught.value.message.removeprefix(f"{folder}/")


def test_matrices_are_float32_and_scaled(tmp_path: Path) -> None:
    written = write_adapter(tmp_path / "a", {Q: LINEARS[Q], UP: LINEARS[UP]}, rank=4, alpha=2)
    found = read(tmp_path / "a")
    assert set(found) == {Q, UP}
    for name, own in found.items():
        a, b = written.matrices[name]
        assert own.rank == 4
        assert own.down.equal(a)
        torch.testing.assert_close(own.up, b / 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_matrices_of_short_floats_are_read(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = write_adapter(tmp_path / "a", {Q: LINEARS[Q]}).folder
    file = folder / "adapter_model.safetensors"
    short = {name: tensor.to(dtype) for name, tensor in load_file(file).items()}
    save_file(short, file)
    assert read(folder)[Q].down.equal(short[KEY].float())


def test_ranks_of_their_own_are_read(tmp_path: Path) -> None:
    folder = write_adapter(
        tmp_path / "a",
        LINEARS,
        rank=4,
        ranks={V: 2},
        alphas={V: 3.0},
        rank_pattern={"v_proj": 2},
        alpha_pattern={"v_proj": 3},
    ).folder
    assert {name: own.rank for name, own in read(folder).items()} == {Q: 4, V: 2, UP: 4}


def drop(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name != KEY}


def transpose(tensors: Tensors) -> Tensors:
    return {**tensors, KEY: tensors[KEY].T.contiguous()}


def rename(tensors: Tensors) -> Tensors:
    return {name.replace("layers.0.self_attn.q_proj", "layers.9.self_attn.q_proj"): t for name, t in tensors.items()}


def add_embedding(tensors: Tensors) -> Tensors:
    return {**tensors, "base_model.model.model.embed_tokens.lora_embedding_A": torch.zeros(4, 8)}


def add_untargeted(tensors: Tensors) -> Tensors:
    return {**tensors, f"base_model.model.{UP}.lora_A.weight": torch.zeros(4, 16)}


def add_integers(tensors: Tensors) -> Tensors:
    return {**tensors, KEY: tensors[KEY].to(torch.int32)}


def spoil(tensors: Tensors) -> Tensors:
    return {**tensors, KEY: tensors[KEY].index_fill(0, torch.tensor([1]), torch.inf)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, f"{Q}: part A is missing"),
        (transpose, f"{KEY}: has the shape [16, 4]; the model and its rank want [4, 16]"),
        (rename, "layers.9.self_attn.q_proj is no linear of this model"),
        (add_embedding, "lora_embedding_A: is no part A or B"),
        (add_untargeted, f"{UP} is none of the target_modules of adapter_config.json"),
        (add_integers, f"{KEY}: is stored as I32"),
        (spoil, f"{Q}: has values that are not finite"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_their_tensor(
    tmp_path: Path, change: Callable[[Tensors], Tensors], message: str
) -> None:
    folder = write_adapter(tmp_path / "a", {Q: LINEARS[Q], V: LINEARS[V]}).folder
    write_config(folder, {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]})
    file = folder / "adapter_model.safetensors"
    save_file(change(load_file(file)), file)
    found = refused(folder)
    assert found.startswith("adapter_model.safetensors: ")
    assert message in found


def test_weights_cut_short_are_refused(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a", {Q: LINEARS[Q]}).folder
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    assert refused(folder).startswith("adapter_model.safetensors: ")


def test_pickled_weights_are_refused_unread(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a", {Q: LINEARS[Q]}).folder
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    assert refused(folder).startswith("adapter_model.bin: is a pickle")
    (folder / "adapter_model.bin").unlink()
    assert refused(folder) == "adapter_model.safetensors: is missing"


def test_rank_beyond_the_engine_is_refused_by_its_key(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a", {Q: LINEARS[Q]}, rank=9).folder
    assert refused(folder).startswith(f"adapter_config.json: r: {Q} has rank 9")


def test_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a", {"transformer.h.0.attn.c_attn": (16, 48)}).folder
    assert refused(folder).startswith("adapter_config.json: target_modules: names no linear of this model")
