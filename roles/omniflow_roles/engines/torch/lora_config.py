"""What an adapter's adapter_config.json says: which linears it changes, and how strongly. Needs no torch.

    {"peft_type": "LORA", "r": 16, "lora_alpha": 32, "use_rslora": false,
     "target_modules": ["q_proj", "v_proj"],        names or their ends; or a regular expression; or "all-linear"
     "rank_pattern": {"layers.0.self_attn.q_proj": 8}, "alpha_pattern": {...}}     by regular expressions of ends of names

    a linear's output is increased by  scale · B A x,  with scale = alpha / rank, or alpha / √rank for rsLoRA

Everything that PEFT can do beyond this is refused, by the key that asks for it. `fan_in_fan_out` is no more than how a
base model stores its own weights, which PEFT ignores for linears.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_roles.engines.checkpoints.findings import FindingCode, UnreadableError
from omniflow_roles.engines.checkpoints.json_files import read_object

Value = TypeVar("Value")

CONFIG = "adapter_config.json"

ALL_LINEAR = "all-linear"
"""The value of target_modules that stands for every linear but the output layer."""

_REFUSED: Mapping[str, str] = {
    "alora_invocation_tokens": "an adapter that begins at certain tokens is not supported",
    "layer_replication": "replicated layers are not supported",
    "lora_bias": "biases of an adapter are not supported",
    "modules_to_save": "whole modules trained beside the adapter are not supported",
    "target_parameters": "adapters of parameters that are no linear's, such as experts, are not supported",
    "trainable_token_indices": "trained embeddings are not supported",
    "use_dora": "DoRA is not supported: it rescales the model's own weights",
    "use_qalora": "QALoRA is not supported: it groups inputs",
}
"""Keys that change the mathematics when they are set."""

_CHANGES_BASE = ("corda", "loftq", "olora", "pissa")
"""Ways of initialising that also changed the weights of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """A checked adapter_config.json."""

    file: Path
    rank: int
    alpha: float
    is_rank_stabilised: bool
    targets: str | tuple[str, ...]
    excluded: str | tuple[str, ...]
    layers: frozenset[int] | None
    """Numbers of the layers that are changed; None for all."""
    layer_lists: tuple[str, ...]
    """Names of the lists whose numbers these are; empty for any."""
    ranks: Mapping[str, int]
    """Of the linears whose names end as a key, a regular expression, says."""
    alphas: Mapping[str, float]

    def targeted(self, linears: Collection[str]) -> list[str]:
        """Which of a model's linears, but its output layer, the adapter changes."""
        return [name for name in linears if self._is_target(name)]

    def rank_of(self, linear: str) -> int:
        return _of_pattern(self.ranks, linear, self.rank)

    def scale_of(self, linear: str) -> float:
        """What B A x is multiplied by."""
        rank = self.rank_of(linear)
        return _of_pattern(self.alphas, linear, self.alpha) / (math.sqrt(rank) if self.is_rank_stabilised else rank)

    def _is_target(self, name: str) -> bool:
        if _matches(self.excluded, name):
            return False
        if self.targets == ALL_LINEAR:
            return True
        return _matches(self.targets, name) and (self.layers is None or self._layer(name) in self.layers)

    def _layer(self, name: str) -> int | None:
        for pattern in self.layer_lists or (r"[^.]*",):
            if found := re.match(rf".*\.{pattern}\.(\d+)\.", name):
                return int(found[1])
        return None


def read_adapter_config(folder: Path) -> AdapterConfig:
    """Of an adapter directory. Raises INVALID_CONFIG, which names the file and the key."""
    file = folder / CONFIG
    try:
        values = read_object(file, FindingCode.BAD_CONFIG)
    except UnreadableError as problem:
        refuse(file, "", problem.message)
    except OSError as error:
        refuse(file, "", f"cannot be read: {error.strerror}")
    if values.get("peft_type") != "LORA":
        refuse(file, "peft_type", f"is {reprlib.repr(values.get('peft_type'))}; only LORA is supported")
    for key, reason in _REFUSED.items():
        if values.get(key):
            refuse(file, key, reason)
    if values.get("bias", "none") != "none":
        refuse(file, "bias", 'trained biases are not supported, only "none"')
    initialised = values.get("init_lora_weights")
    if isinstance(initialised, str) and initialised.lower().startswith(_CHANGES_BASE):
        refuse(
            file, "init_lora_weights", f"{initialised!r} changed the model's own weights too: convert it to plain LoRA"
        )
    layers = values.get("layers_to_transform")
    if isinstance(layers, int):
        layers = [layers]
    config = AdapterConfig(
        file=file,
        rank=_rank(file, "r", values.get("r")),
        alpha=_alpha(file, "lora_alpha", values.get("lora_alpha")),
        is_rank_stabilised=bool(values.get("use_rslora")),
        targets=_names(file, "target_modules", values.get("target_modules")),
        excluded=_names(file, "exclude_modules", values.get("exclude_modules") or []),
        layers=None if layers is None else _numbers(file, "layers_to_transform", layers),
        layer_lists=_layer_lists(file, values.get("layers_pattern") or []),
        ranks={
            key: _rank(file, f"rank_pattern: {key}", value) for key, value in _patterns(file, "rank_pattern", values)
        },
        alphas={
            key: _alpha(file, f"alpha_pattern: {key}", value) for key, value in _patterns(file, "alpha_pattern", values)
        },
    )
    _check_expressions(config)
    return config


def refuse(file: Path, key: str, description: str) -> NoReturn:
    """Raises the error about one key, or tensor, of an adapter's file."""
    where = f"{file}: {key}" if key else str(file)
    raise OmniFlowError(
        Reason.INVALID_CONFIG,
        f"{where}: {description}",
        violations=[Violation(field=where, description=description)],
    )


def _matches(names: str | Sequence[str], linear: str) -> bool:
    """As PEFT does: a text is a regular expression of the whole name, a list has names or what follows a dot in them."""
    if isinstance(names, str):
        return re.fullmatch(names, linear) is not None
    return any(linear == name or linear.endswith(f".{name}") for name in names)


def _of_pattern(patterns: Mapping[str, Value], linear: str, otherwise: Value) -> Value:
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", linear)), otherwise)


def _check_expressions(config: AdapterConfig) -> None:
    for key, expressions in (
        ("target_modules", [config.targets] if isinstance(config.targets, str) else []),
        ("exclude_modules", [config.excluded] if isinstance(config.excluded, str) else []),
        ("layers_pattern", config.layer_lists),
        ("rank_pattern", config.ranks),
        ("alpha_pattern", config.alphas),
    ):
        for expression in expressions:
            try:
                re.compile(rf"(.*\.)?({expression})$")
            except (re.error, RecursionError, OverflowError):
                refuse(config.file, key, f"{reprlib.repr(expression)} is no regular expression")


def _rank(file: Path, key: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        refuse(file, key, f"is {reprlib.repr(value)}, and must be a whole number above 0")
    return value


def _alpha(file: Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        refuse(file, key, f"is {reprlib.repr(value)}, and must be a number")
    return float(value)


def _names(file: Path, key: str, value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str) and value:
        # PEFT takes "all-linear" in any case
        return ALL_LINEAR if value.lower() == ALL_LINEAR else value
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    refuse(file, key, f"is {reprlib.repr(value)}, and must be names, a regular expression or {ALL_LINEAR!r}")


def _numbers(file: Path, key: str, value: Any) -> frozenset[int]:
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        refuse(file, key, f"is {reprlib.repr(value)}, and must be numbers of layers")
    return frozenset(value)


def _layer_lists(file: Path, value: Any) -> tuple[str, ...]:
    found = _names(file, "layers_pattern", value)
    return (found,) if isinstance(found, str) else found


def _patterns(file: Path, key: str, values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found = values.get(key) or {}
    if not isinstance(found, dict):
        refuse(file, key, f"is {reprlib.repr(found)}, and must be an object")
    return list(found.items())
