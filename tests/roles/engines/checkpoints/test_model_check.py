"""`omniflow model check` on directories good and bad: the verdict, the status, and the finding that says why."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from omniflow_core.errors import OmniFlowError
from omniflow_roles.engines.checkpoints.findings import FindingCode
from omniflow_roles.engines.torch.lora_config import read_adapter_config
from tests.roles.engines.checkpoints import building as make
from tests.server.cli.command import CommandLine

Code = FindingCode
SECOND = "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def omniflow(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    """The whole command line, which finds `model` by its entry point."""
    for variable in [name for name in os.environ if name.startswith("OMNIFLOW_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys=capsys, monkeypatch=monkeypatch, folder=tmp_path)


class Explosive:
    """Ends the process when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


def write_pickle(file: Path) -> None:
    file.write_bytes(pickle.dumps(Explosive()))


def truncated(folder: Path) -> None:
    file = make.write_sharded(folder) / SECOND
    file.write_bytes(file.read_bytes()[:-100])


def truncated_header(folder: Path) -> None:
    file = make.write_model(folder) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:200])


def wrong_dtype(folder: Path) -> None:
    tensors = make.model_tensors(make.LLAMA)
    tensors["model.layers.1.mlp.up_proj.weight"] = ("F8_E4M3", [48, 32])
    make.write_model(folder, tensors=tensors)


def integer_weights(folder: Path) -> None:
    make.write_model(folder, tensors=make.model_tensors(make.LLAMA, "I64"))


def pickle_only(folder: Path) -> None:
    (make.write_model(folder) / "model.safetensors").unlink()
    write_pickle(folder / "pytorch_model.bin")


def pickle_alone(folder: Path) -> None:
    folder.mkdir()
    write_pickle(folder / "consolidated.00.pth")


def pickle_beside(folder: Path) -> None:
    write_pickle(make.write_model(folder) / "pytorch_model.bin")


def unknown_architecture(folder: Path) -> None:
    make.write_model(folder, {**make.LLAMA, "model_type": "lama", "architectures": ["LamaForCausalLM"]})


def attention_sinks(folder: Path) -> None:
    make.write_model(folder, {**make.LLAMA, "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"]})


def classifier(folder: Path) -> None:
    make.write_model(folder, {**make.LLAMA, "architectures": ["LlamaForSequenceClassification"]})


def missing_shard(folder: Path) -> None:
    (make.write_sharded(folder) / SECOND).unlink()


def stray_shard(folder: Path) -> None:
    tensors = {"model.extra.weight": ("BF16", [2])}
    (make.write_sharded(folder) / "model-00003-of-00003.safetensors").write_bytes(make.safetensors_bytes(tensors))


def index_of(folder: Path, change: Callable[[dict[str, str]], None]) -> None:
    file = make.write_sharded(folder) / INDEX
    index = json.loads(file.read_text())
    change(index["weight_map"])
    make.write_json(file, index)


def tensor_not_in_shard(folder: Path) -> None:
    index_of(folder, lambda weights: weights.update({"lm_head.bias": SECOND}))


def tensor_not_in_index(folder: Path) -> None:
    index_of(folder, lambda weights: weights.__delitem__("model.norm.weight"))


def index_leaves_directory(folder: Path) -> None:
    index_of(folder, lambda weights: weights.update({"lm_head.weight": "../other/model.safetensors"}))


def empty_index(folder: Path) -> None:
    index_of(folder, lambda weights: weights.clear())


def tensor_in_two_shards(folder: Path) -> None:
    make.write_sharded(folder)
    tensors = make.model_tensors(make.LLAMA)
    held = [name for name, file in json.loads((folder / INDEX).read_text())["weight_map"].items() if file == SECOND]
    both = {name: tensors[name] for name in [*held, sorted(set(tensors) - set(held))[0]]}
    (folder / SECOND).write_bytes(make.safetensors_bytes(both))


def overlapping_offsets(folder: Path) -> None:
    tensors = {"model.embed_tokens.weight": ("F32", [4, 4]), "lm_head.weight": ("F32", [4, 4])}
    written = make.safetensors_bytes(tensors, **{"lm_head.weight": {"data_offsets": [32, 96]}})
    make.write_model(folder)
    (folder / "model.safetensors").write_bytes(written)


def shape_of_other_size(folder: Path) -> None:
    tensors = make.model_tensors(make.LLAMA)
    written = make.safetensors_bytes(tensors, **{"model.norm.weight": {"shape": [31]}})
    make.write_model(folder)
    (folder / "model.safetensors").write_bytes(written)


def remote_code(folder: Path) -> None:
    make.write_model(folder, {**make.LLAMA, "auto_map": {"AutoModelForCausalLM": "modeling_llama.Llama"}})
    (folder / "modeling_llama.py").write_text("raise SystemExit('model code was imported')")


def tokenizer_with_code(folder: Path) -> None:
    make.write_json(make.write_model(folder) / "tokenizer_config.json", {"auto_map": {"AutoTokenizer": "t.Tokenizer"}})


def no_tokenizer(folder: Path) -> None:
    (make.write_model(folder) / "tokenizer.json").unlink()


def broken_tokenizer(folder: Path) -> None:
    (make.write_model(folder) / "tokenizer.json").write_text('{"model": {"type": "BP')


def quantised(folder: Path) -> None:
    make.write_model(folder, {**make.LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4}})


def broken_config(folder: Path) -> None:
    (make.write_model(folder) / "config.json").write_text('{"model_type": "llama",')


def config_without_layers(folder: Path) -> None:
    make.write_model(folder)
    make.write_json(folder / "config.json", {k: v for k, v in make.LLAMA.items() if k != "num_hidden_layers"})


def fewer_layers_than_configured(folder: Path) -> None:
    make.write_model(folder, {**make.LLAMA, "num_hidden_layers": 3}, make.model_tensors(make.LLAMA))


def more_layers_than_configured(folder: Path) -> None:
    make.write_model(folder, {**make.LLAMA, "num_hidden_layers": 1}, make.model_tensors(make.LLAMA))


def other_head_count(folder: Path) -> None:
    make.write_model(folder, {**make.LLAMA, "num_key_value_heads": 4}, make.model_tensors(make.LLAMA))


def no_head(folder: Path) -> None:
    tensors = make.model_tensors(make.LLAMA)
    del tensors["lm_head.weight"]
    make.write_model(folder, tensors=tensors)


def oddly_named_weights(folder: Path) -> None:
    (make.write_model(folder) / "model.safetensors").rename(folder / "weights.safetensors")


def no_weights(folder: Path) -> None:
    (make.write_model(folder) / "model.safetensors").unlink()


def empty(folder: Path) -> None:
    folder.mkdir()


def adapter_with_patterns(folder: Path) -> None:
    config = {
        **make.ADAPTER,
        "r": 16,
        "rank_pattern": {r"layers\.0\..*q_proj": 2, "q_proj": 4},
        "alpha_pattern": {r"1\.self_attn\.q_proj": 4},
        "fan_in_fan_out": True,
        "use_rslora": True,
    }
    start = "base_model.model.model.layers"
    tensors = {}
    for layer, rank in ((0, 2), (1, 4)):
        tensors[f"{start}.{layer}.self_attn.q_proj.lora_A.weight"] = ("F16", [rank, 32])
        tensors[f"{start}.{layer}.self_attn.q_proj.lora_B.weight"] = ("F16", [32, rank])
    make.write_adapter(folder, config, tensors)


def adapter_that_only_says_how_it_was_trained(folder: Path) -> None:
    trained = {"lora_dropout": 0.5, "init_lora_weights": "gaussian", "modules_to_save": [], "use_dora": False}
    make.write_adapter(folder, {**make.ADAPTER, **trained})


def adapter_of_other_pattern(folder: Path) -> None:
    make.write_adapter(folder, {**make.ADAPTER, "rank_pattern": {r"1\.self_attn\.q_proj": 8}})


def adapter_of_other_targets(folder: Path) -> None:
    make.write_adapter(folder, {**make.ADAPTER, "target_modules": ["v_proj"]})


def adapter_of_other_layers(folder: Path) -> None:
    make.write_adapter(folder, {**make.ADAPTER, "layers_to_transform": [1]})


def adapter_in_float64(folder: Path) -> None:
    start = "base_model.model.model.layers.0.self_attn.q_proj"
    parts = {f"{start}.lora_A.weight": ("F64", [4, 32]), f"{start}.lora_B.weight": ("F64", [32, 4])}
    make.write_adapter(folder, tensors=parts)


def adapter_in_shards(folder: Path) -> None:
    file = make.write_adapter(folder) / "adapter_model.safetensors"
    start = "base_model.model.model.layers"
    names = [f"{start}.{layer}.self_attn.q_proj.lora_{part}.weight" for layer in range(2) for part in "AB"]
    file.rename(folder / "adapter_model-00001-of-00001.safetensors")
    index = {"weight_map": dict.fromkeys(names, "adapter_model-00001-of-00001.safetensors")}
    make.write_json(folder / "adapter_model.safetensors.index.json", index)


def adapter_of_a_bare_model(folder: Path) -> None:
    parts = {"layers.0.q_proj.lora_A.weight": ("F32", [4, 32]), "layers.0.q_proj.lora_B.weight": ("F32", [32, 4])}
    start = "base_model.model.layers.0.q_proj"
    good = {f"{start}.lora_A.weight": ("F32", [4, 32]), f"{start}.lora_B.weight": ("F32", [32, 4])}
    make.write_adapter(folder, tensors={**parts, **good})


def adapter_broken_config(folder: Path) -> None:
    (make.write_adapter(folder) / "adapter_config.json").write_text('{"peft_type": "LORA",')


def adapter_without_its_half(folder: Path) -> None:
    start = "base_model.model.model.layers.0.self_attn.q_proj"
    make.write_adapter(folder, tensors={f"{start}.lora_A.weight": ("F32", [4, 32])})


def adapter_of_other_rank(folder: Path) -> None:
    make.write_adapter(folder, {**make.ADAPTER, "r": 16})


def adapter_as_pickle(folder: Path) -> None:
    (make.write_adapter(folder) / "adapter_model.safetensors").unlink()
    write_pickle(folder / "adapter_model.bin")


def adapter_with_embeddings(folder: Path) -> None:
    start = "base_model.model.model"
    tensors = {
        f"{start}.embed_tokens.lora_embedding_A": ("F32", [4, 64]),
        f"{start}.layers.0.self_attn.q_proj.lora_A.weight": ("F32", [4, 32]),
        f"{start}.layers.0.self_attn.q_proj.lora_B.weight": ("F32", [32, 4]),
    }
    make.write_adapter(folder, tensors=tensors)


UNSUPPORTED: Mapping[str, Any] = {
    "alora_invocation_tokens": [1, 2],
    "bias": "lora_only",
    "init_lora_weights": "loftq",
    "layer_replication": [[0, 2]],
    "lora_bias": True,
    "modules_to_save": ["lm_head"],
    "peft_type": "PREFIX_TUNING",
    "target_parameters": ["experts.gate_up_proj"],
    "trainable_token_indices": [5],
    "use_dora": True,
    "use_qalora": True,
}
"""By key, what an adapter may not ask for."""
MISTAKEN: Mapping[str, Any] = {
    "alpha_pattern": {"q_proj": None},
    "exclude_modules": "*",
    "layers_pattern": 3,
    "layers_to_transform": ["1"],
    "lora_alpha": "8",
    "r": 0,
    "rank_pattern": {"q_proj": 0},
    "target_modules": None,
}
"""By key, what no adapter can mean."""


def write_adapter_with(folder: Path, *, key: str, value: object) -> None:
    make.write_adapter(folder, {**make.ADAPTER, key: value})


def gguf(folder: Path, written: make.GgufBytes | None = None) -> None:
    folder.mkdir()
    (folder / "model.gguf").write_bytes((written or make.gguf_llama()).build())


def gguf_truncated(folder: Path) -> None:
    gguf(folder)
    file = folder / "model.gguf"
    file.write_bytes(file.read_bytes()[:-33])


def gguf_twice(folder: Path) -> None:
    gguf(folder)
    (folder / "other.gguf").write_bytes(make.gguf_llama().build())


GOOD: Mapping[str, Callable[[Path], object]] = {
    "llama": make.write_model,
    "sharded": make.write_sharded,
    "qwen3 moe": lambda folder: make.write_model(folder, make.QWEN3_MOE),
    "adapter": make.write_adapter,
    "adapter with patterns": adapter_with_patterns,
    "adapter that only says how it was trained": adapter_that_only_says_how_it_was_trained,
    "gguf": gguf,
}
WARNED: Mapping[str, tuple[Callable[[Path], object], Code]] = {
    "pickle beside safetensors": (pickle_beside, Code.PICKLE_WEIGHTS),
    "no tokenizer": (no_tokenizer, Code.NO_TOKENIZER),
    "more layers than configured": (more_layers_than_configured, Code.UNUSED_TENSOR),
}
BAD: Mapping[str, tuple[Callable[[Path], object], Code]] = {
    "truncated shard": (truncated, Code.TRUNCATED),
    "truncated header": (truncated_header, Code.TRUNCATED),
    "float8 weights": (wrong_dtype, Code.UNSUPPORTED_DTYPE),
    "integer weights": (integer_weights, Code.UNSUPPORTED_DTYPE),
    "pickle only": (pickle_only, Code.PICKLE_WEIGHTS),
    "pickle alone": (pickle_alone, Code.PICKLE_WEIGHTS),
    "unknown architecture": (unknown_architecture, Code.UNKNOWN_ARCHITECTURE),
    "attention sinks": (attention_sinks, Code.UNKNOWN_ARCHITECTURE),
    "classifier": (classifier, Code.NOT_GENERATIVE),
    "missing shard": (missing_shard, Code.MISSING_SHARD),
    "stray shard": (stray_shard, Code.STRAY_SHARD),
    "tensor not in its shard": (tensor_not_in_shard, Code.MISSING_TENSOR),
    "tensor not in the index": (tensor_not_in_index, Code.UNINDEXED_TENSOR),
    "index leaves the directory": (index_leaves_directory, Code.BAD_INDEX),
    "empty index": (empty_index, Code.BAD_INDEX),
    "tensor in two shards": (tensor_in_two_shards, Code.DUPLICATE_TENSOR),
    "overlapping offsets": (overlapping_offsets, Code.BAD_OFFSETS),
    "shape of another size": (shape_of_other_size, Code.BAD_OFFSETS),
    "remote code": (remote_code, Code.REMOTE_CODE),
    "tokenizer with code": (tokenizer_with_code, Code.REMOTE_CODE),
    "broken tokenizer": (broken_tokenizer, Code.BAD_TOKENIZER),
    "quantised": (quantised, Code.QUANTIZED),
    "broken config": (broken_config, Code.BAD_CONFIG),
    "config without layers": (config_without_layers, Code.BAD_CONFIG),
    "fewer layers than configured": (fewer_layers_than_configured, Code.MISSING_TENSOR),
    "other head count": (other_head_count, Code.MISMATCHED_SHAPE),
    "no head": (no_head, Code.MISSING_TENSOR),
    "oddly named weights": (oddly_named_weights, Code.NO_WEIGHTS),
    "no weights": (no_weights, Code.NO_WEIGHTS),
    "empty": (empty, Code.NOT_A_MODEL),
    "adapter without its other half": (adapter_without_its_half, Code.MISSING_TENSOR),
    "adapter of another rank": (adapter_of_other_rank, Code.MISMATCHED_SHAPE),
    "adapter as a pickle": (adapter_as_pickle, Code.PICKLE_WEIGHTS),
    "adapter of another rank in a pattern": (adapter_of_other_pattern, Code.MISMATCHED_SHAPE),
    "adapter of other targets": (adapter_of_other_targets, Code.UNUSED_TENSOR),
    "adapter of other layers": (adapter_of_other_layers, Code.UNUSED_TENSOR),
    "adapter in float64": (adapter_in_float64, Code.UNSUPPORTED_DTYPE),
    "adapter in shards": (adapter_in_shards, Code.UNSUPPORTED_ADAPTER),
    "adapter of a bare model": (adapter_of_a_bare_model, Code.UNSUPPORTED_ADAPTER),
    "adapter with a broken config": (adapter_broken_config, Code.BAD_CONFIG),
    "adapter with embeddings": (adapter_with_embeddings, Code.UNSUPPORTED_ADAPTER),
    "truncated GGUF": (gguf_truncated, Code.TRUNCATED),
    "two GGUFs": (gguf_twice, Code.AMBIGUOUS),
    **{
        f"adapter with {key} {value!r}": (
            partial(write_adapter_with, key=key, value=value),
            Code.UNSUPPORTED_ADAPTER,
        )
        for key, value in UNSUPPORTED.items()
    },
    **{
        f"adapter with {key} {value!r}": (partial(write_adapter_with, key=key, value=value), Code.BAD_CONFIG)
        for key, value in MISTAKEN.items()
    },
}


def verdict(omniflow: CommandLine, *options: str) -> tuple[int, dict[str, Any]]:
    outcome = omniflow("model", "check", "model", "--json", *options)
    assert outcome.err == ""
    return outcome.status, json.loads(outcome.out)


@pytest.mark.parametrize("case", GOOD)
def test_check_accepts_good_models_without_a_finding(case: str, omniflow: CommandLine) -> None:
    GOOD[case](omniflow.folder / "model")
    status, report = verdict(omniflow)
    assert (status, report["is_supported"], report["findings"]) == (0, True, [])


@pytest.mark.parametrize("case", WARNED)
def test_check_warns_of_what_does_not_keep_a_model_from_running(case: str, omniflow: CommandLine) -> None:
    build, code = WARNED[case]
    build(omniflow.folder / "model")
    status, report = verdict(omniflow)
    assert (status, report["is_supported"]) == (0, True)
    assert [(finding["severity"], finding["code"]) for finding in report["findings"]] == [("warning", code)]


@pytest.mark.parametrize("case", BAD)
def test_check_refuses_bad_models_with_the_reason_and_a_way_out(case: str, omniflow: CommandLine) -> None:
    build, code = BAD[case]
    build(omniflow.folder / "model")
    status, report = verdict(omniflow)
    assert (status, report["is_supported"]) == (1, False)
    errors = [finding for finding in report["findings"] if finding["severity"] == "error"]
    assert errors[0]["code"] == code, errors
    assert len(errors) == 1, errors
    assert all(errors[0][part] for part in ("where", "message", "fix"))


@pytest.mark.parametrize(("key", "value"), [*UNSUPPORTED.items(), *MISTAKEN.items()])
def test_check_refuses_an_adapter_by_the_key_and_in_the_words_of_the_loading(
    key: str, value: object, omniflow: CommandLine
) -> None:
    write_adapter_with(omniflow.folder / "model", key=key, value=value)
    [finding] = verdict(omniflow)[1]["findings"]
    with pytest.raises(OmniFlowError) as caught:
        read_adapter_config(omniflow.folder / "model")
    [violation] = caught.value.info.violations
    assert violation.field == f"{omniflow.folder / 'model'}/{finding['where']}"
    assert finding["where"].startswith(f"adapter_config.json: {key}")
    assert finding["message"] == violation.description


@pytest.mark.parametrize("case", [*GOOD, *WARNED, *BAD])
def test_check_prints_the_verdict_and_every_finding_for_people(case: str, omniflow: CommandLine) -> None:
    build = GOOD.get(case) or {**WARNED, **BAD}[case][0]
    build(omniflow.folder / "model")
    _, report = verdict(omniflow)
    outcome = omniflow("model", "check", "model")
    assert outcome.status == (0 if report["is_supported"] else 1)
    first, *lines = outcome.out.splitlines()
    assert f" is {'' if report['is_supported'] else 'not '}supported: {report['kind']}" in first
    for finding in report["findings"]:
        at = lines.index(f"{finding['severity']} {finding['code']} {finding['where']}")
        assert lines[at + 1] == f"  {finding['message']}. {finding['fix']}"


def test_check_prints_what_a_model_takes(omniflow: CommandLine) -> None:
    make.write_model(omniflow.folder / "model")
    outcome = omniflow("model", "check", "model", "--memory", "1MiB")
    assert [line.rstrip() for line in outcome.out.splitlines()] == [
        "model is supported: Hugging Face directory, LlamaForCausalLM of type llama",
        "parameters    19,616",
        "stored        38.3 KiB, BF16, 1 file",
        "loaded        38.3 KiB as bfloat16",
        "KV per token  128 B: 2 layers × 2 heads × (8 + 8) × 2 bytes",
        "context       512 tokens",
        "in 1.0 MiB    7,885 tokens of KV fit beside the weights",
    ]


def test_check_counts_in_the_dtype_that_is_asked_for(omniflow: CommandLine) -> None:
    make.write_model(omniflow.folder / "model")
    parameters = make.parameters_of(make.model_tensors(make.LLAMA))
    for dtype, size in (("float32", 4), ("float16", 2)):
        _, report = verdict(omniflow, "--dtype", dtype)
        assert (report["loaded_bytes"], report["kv_bytes_per_token"]) == (size * parameters, size * 64)
        assert (report["parameter_count"], report["stored_bytes"]) == (parameters, 2 * parameters)


def test_check_of_a_model_that_does_not_fit_ends_with_status_1(omniflow: CommandLine) -> None:
    make.write_model(omniflow.folder / "model")
    status, report = verdict(omniflow, "--memory", "39232")
    assert (status, report["is_supported"], report["is_fitting"], report["kv_tokens"]) == (0, True, True, 0)
    status, report = verdict(omniflow, "--memory", "39231")
    assert (status, report["is_supported"], report["is_fitting"], report["kv_tokens"]) == (1, True, False, None)
    assert "the weights do not fit: 1 B too much" in omniflow("model", "check", "model", "--memory", "39231").out


@pytest.mark.parametrize(
    ("dtype", "floats", "shown"),
    [
        ("int8", "bfloat16", "as int8, the rest bfloat16 (on a GPU; on a CPU: int8-cpu)"),
        ("int8-cpu", "float32", "as int8, the rest float32 (on a CPU)"),
    ],
)
def test_check_of_int8_says_what_the_rest_is_held_as(
    dtype: str, floats: str, shown: str, omniflow: CommandLine
) -> None:
    make.write_model(omniflow.folder / "model")
    _, report = verdict(omniflow, "--dtype", dtype)
    assert (report["loaded_as"], report["floats_as"]) == (dtype, floats)
    assert report["kv_bytes_per_token"] == {"bfloat16": 2, "float32": 4}[floats] * 64
    assert shown in omniflow("model", "check", "model", "--dtype", dtype).out


@pytest.mark.parametrize("build", [truncated, missing_shard, gguf_truncated, no_weights])
def test_check_counts_no_part_of_a_model_that_cannot_be_read_whole(
    build: Callable[[Path], object], omniflow: CommandLine
) -> None:
    build(omniflow.folder / "model")
    _, report = verdict(omniflow, "--memory", "1GiB")
    counted = ("parameter_count", "loaded_bytes", "kv_bytes_per_token", "is_fitting", "kv_tokens")
    assert [report[name] for name in counted] == [None] * len(counted)
    assert "parameters" not in omniflow("model", "check", "model").out


def test_check_lets_no_name_steer_the_terminal(omniflow: CommandLine) -> None:
    make.write_model(omniflow.folder / "model", {**make.LLAMA, "model_type": "\x1b]0;owned\x07"})
    outcome = omniflow("model", "check", "model")
    assert outcome.status == 1
    assert outcome.out.isprintable() or set(filter(lambda c: not c.isprintable(), outcome.out)) == {"\n"}
    assert "\\x1b]0;owned\\x07" in outcome.out


def test_check_reads_a_gguf_file_by_its_own_name(omniflow: CommandLine) -> None:
    gguf(omniflow.folder / "model")
    outcome = omniflow("model", "check", "model/model.gguf")
    assert outcome.status == 0
    assert "GGUF file, LlamaForCausalLM of type llama" in outcome.out
    assert "Q8_0, F32, 1 file" in outcome.out


def test_check_says_what_an_adapter_is_for(omniflow: CommandLine) -> None:
    make.write_adapter(omniflow.folder / "model")
    outcome = omniflow("model", "check", "model", "--dtype", "int8")
    assert "LoRA adapter for org/llama" in outcome.out
    assert "1.0 KiB as bfloat16" in outcome.out
    assert "rank 4, alpha 8, 2 linears" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent",), "there is no file or directory absent"),
        ((".", "--memory", "eight"), "'eight' is no size such as 8GiB, 500MB or 4096"),
        ((".", "--dtype", "int4"), "'int4' is not one of"),
        ((), "Missing argument"),
    ],
)
def test_check_used_wrongly_ends_with_status_2(arguments: tuple[str, ...], message: str, omniflow: CommandLine) -> None:
    outcome = omniflow("model", "check", *arguments)
    assert outcome.status == 2
    assert message in " ".join(outcome.err.split())


def test_check_has_help_with_examples(omniflow: CommandLine) -> None:
    outcome = omniflow("model", "check", "--help")
    assert outcome.status == 0
    assert "Examples" in outcome.out
    assert "omniflow model check models/Qwen3-8B --dtype int8 --memory 24GiB" in outcome.out


def test_check_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from omniflow_roles.engines.checkpoints import cli; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'numpy', 'gguf')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
