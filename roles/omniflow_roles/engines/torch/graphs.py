"""Decode steps as captured CUDA graphs: forward, draw and hand-over of the drawn tokens in one launch.

    static tensors   ids pending positions slots lengths   [5, rows] ── filled by one copy a step
                     tables [rows, pages]   uniforms [rows]   parameters [4, rows]   last draws [rows]
    graph            one for each size of batch (rows are padded up to it) and each way to draw, captured when first needed

A row that pads the batch writes to the padding page and draws a token that nobody reads. `last` holds what the step before
drew, so that a pending token never passes through the host.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from omniflow_roles.engines.sampling.draw import DrawPath, RowParameters, draw
from omniflow_roles.engines.sampling.parameters import EVERY_PATH
from omniflow_roles.engines.torch.attention import PagedBatch
from omniflow_roles.engines.torch.kv import KvTensors
from omniflow_roles.engines.torch.runner import ModelRunner
from omniflow_roles.engines.torch.triton_decode import TritonDecode

logger = logging.getLogger(__name__)

IDS, PENDING, POSITIONS, SLOTS, LENGTHS = range(5)
"""Rows of `StaticInputs.ints`."""

_GREEDY = DrawPath(is_all_greedy=True, needs_top_k=False, needs_top_p=False, needs_min_p=False)
_PLAIN = DrawPath(needs_top_k=False, needs_top_p=False, needs_min_p=False)
_WARM_UPS = 2


def batch_sizes(max_rows: int) -> tuple[int, ...]:
    """Sizes that batches are padded to: by twos at first, then so that at most a quarter of a batch is padding."""
    sizes = [size for size in (1, 2, 4, 8, 12, 16, 24, 32) if size < max_rows]
    sizes += range(48, max_rows, 16)
    return (*sizes, max_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticInputs:
    """Device tensors that every graph reads."""

    ints: torch.Tensor
    """[5, rows] int64"""
    tables: torch.Tensor
    """[rows, pages] int32"""
    uniforms: torch.Tensor
    """[rows] float64"""
    parameters: torch.Tensor
    """[4, rows] float32, as `RowParameters.packed`"""
    last: torch.Tensor
    """[draws] int64: tokens that the newest step drew"""

    @classmethod
    def allocate(cls, *, rows: int, pages: int, draws: int, device: torch.device) -> StaticInputs:
        with torch.inference_mode(False):
            return cls(
                ints=torch.zeros(5, rows, dtype=torch.int64, device=device),
                tables=torch.zeros(rows, pages, dtype=torch.int32, device=device),
                uniforms=torch.zeros(rows, dtype=torch.float64, device=device),
                parameters=torch.zeros(4, rows, device=device),
                last=torch.zeros(draws, dtype=torch.int64, device=device),
            )


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    logits: torch.Tensor | None
    """Of a graph that leaves the draw to others, [rows, vocabulary]."""


class DecodeGraphs:
    """Captures and replays. One stream; not thread-safe."""

    def __init__(self, runner: ModelRunner, kv: KvTensors, inputs: StaticInputs, *, splits: int) -> None:
        self._runner = runner
        self._kv = kv
        self._inputs = inputs
        self._splits = splits
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[tuple[int, DrawPath | None], _Captured | None] = {}

    def replay(self, rows: int, path: DrawPath | None) -> bool:
        """Runs the graph of a padded batch, drawing by `path` or (None) not at all. False when it cannot be captured."""
        captured = self._captured(rows, path)
        if captured is None:
            return False
        captured.graph.replay()
        return True

    def logits(self, rows: int) -> torch.Tensor:
        """What the last replay without a draw gave, [rows, vocabulary]."""
        captured = self._graphs[rows, None]
        assert captured is not None
        assert captured.logits is not None
        return captured.logits

    def _captured(self, rows: int, path: DrawPath | None) -> _Captured | None:
        key = (rows, path and _nearest(path))
        if key not in self._graphs:
            try:
                self._graphs[key] = self._capture(*key)
            except RuntimeError:
                # Experts that are chosen on the host, for one.
                logger.warning(
                    "a decode step of %d rows cannot be captured; it runs without a graph", rows, exc_info=True
                )
                self._graphs[key] = None
        return self._graphs[key]

    def _capture(self, rows: int, path: DrawPath | None) -> _Captured:
        before = self._inputs.last.clone()
        try:
            for _ in range(_WARM_UPS):
                self._run(rows, path)
            torch.cuda.current_stream().synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=torch.cuda.current_stream()):
                logits = self._run(rows, path)
        finally:
            self._inputs.last.copy_(before)  # a warm-up draws too, and this very step may read what the last one drew
        return _Captured(graph, logits)

    def _run(self, rows: int, path: DrawPath | None) -> torch.Tensor | None:
        inputs = self._inputs
        ints = inputs.ints[:, :rows]
        pending = ints[PENDING]
        ids = torch.where(pending >= 0, inputs.last[pending.clamp(min=0)], ints[IDS])
        decode = TritonDecode(row_count=rows, tables=inputs.tables[:rows], lengths=ints[LENGTHS], splits=self._splits)
        paged = PagedBatch(kv=self._kv, write_slots=ints[SLOTS], decode=decode, prefill=None)
        logits = self._runner.forward(ids, ints[POSITIONS], paged, logit_rows=None)
        if path is None:
            return logits
        parameters = RowParameters(packed=inputs.parameters[:, :rows], path=path)
        inputs.last[:rows].copy_(draw(logits, parameters, inputs.uniforms[:rows]).tokens)
        return None


def _nearest(path: DrawPath) -> DrawPath:
    """Of the few ways to draw that graphs are captured for, the least that does what the path asks."""
    if path.is_all_greedy:
        return _GREEDY
    return EVERY_PATH if path.needs_ranking or path.needs_min_p else _PLAIN
