"""What `inspect_model` answers."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from omniflow_roles.engines.checkpoints.findings import Finding, Severity
from omniflow_roles.engines.checkpoints.memory import KvShape, LoadDtype, MemoryNeed
from omniflow_roles.engines.checkpoints.tensors import WeightCount


class ModelKind(enum.StrEnum):
    """What is on the disk."""

    HUGGING_FACE = "Hugging Face directory"
    GGUF = "GGUF file"
    LORA = "LoRA adapter"
    UNKNOWN = "unknown kind"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """Layers in which a query sees the last tokens only."""

    size: int
    """Tokens, the query's own included."""
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What the engine takes from a model's configuration."""

    model_type: str
    architecture: str
    """The model class, or `general.architecture`."""
    kv: KvShape | None = None
    window: SlidingWindow | None = None
    context_size: int | None = None
    """Most tokens of prompt and answer together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraConfig:
    """What the engine takes from an adapter's configuration."""

    base_model: str
    """What it was trained on, as its author wrote it: a name or a path."""
    rank: int
    alpha: float
    """As `rank`, of the linears for which no pattern says another."""
    module_count: int
    """Linears that it changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """Of a checkpoint that may be broken: what could not be found out is None, or empty."""

    path: str
    kind: ModelKind
    config: ModelConfig | None = None
    lora: LoraConfig | None = None
    weights: WeightCount | None = None
    """None unless every file of weights could be read."""
    file_count: int = 0
    """Files of weights."""
    stored_bytes: int = 0
    """Bytes of weights on the disk, as far as they could be read."""
    dtypes: tuple[str, ...] = ()
    """Of the weights, the one with the most bytes first."""
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def is_supported(self) -> bool:
        """Whether the engine loads it."""
        return not self.errors

    def memory(self, dtype: LoadDtype) -> MemoryNeed | None:
        """What it takes, loaded as `dtype`; None without `weights`. An adapter has no keys and values of its own, and
        stays in floats."""
        if self.weights is None:
            return None
        kv = self.config.kv if self.config else None
        weight_bytes = dtype.float_bytes * self.weights.total if self.lora else dtype.bytes_of(self.weights)
        return MemoryNeed(
            weight_bytes=weight_bytes, kv_bytes_per_token=kv.bytes_per_token(dtype) if kv is not None else 0
        )
