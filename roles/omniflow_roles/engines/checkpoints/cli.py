"""`omniflow model check`; the command line loads it by the entry point `model` of the group `omniflow.commands`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from omniflow_roles.engines.checkpoints.findings import Finding, Severity
from omniflow_roles.engines.checkpoints.inspect import inspect_model
from omniflow_roles.engines.checkpoints.memory import LoadDtype, MemoryNeed, parse_size, show_size
from omniflow_roles.engines.checkpoints.report import ModelReport

app = typer.Typer(help="Models on this disk: what they are and whether they run.", no_args_is_help=True)

_NOT_SUPPORTED = 1
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow"}


def _memory(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None


@app.command()
def check(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A Hugging Face or LoRA directory, or a GGUF file.", show_default=False),
    ],
    dtype: Annotated[
        LoadDtype,
        typer.Option(
            "--dtype",
            "-d",
            help="What the weights are to be loaded as. int8 leaves bfloat16 what is no linear, int8-cpu float32.",
        ),
    ] = LoadDtype.BFLOAT16,
    memory: Annotated[
        int | None,
        typer.Option("--memory", "-m", metavar="SIZE", parser=_memory, help="What weights and KV may take: 8GiB."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """
    Say what a model on this disk is, whether the engine runs it and how much memory it takes. Only headers are read.

    Status 1 when it does not run, or does not fit into --memory.

    [bold]Examples[/]

      omniflow model check models/SmolLM2-135M-Instruct
      omniflow model check models/Qwen3-8B --dtype int8 --memory 24GiB
      omniflow model check adapters/formal --json
    """
    report = inspect_model(path)
    if as_json:
        typer.echo(json.dumps(_as_json(report, dtype, memory), indent=2))
    else:
        _show(report, dtype, memory)
    need = report.memory(dtype)
    if not report.is_supported or (memory is not None and need is not None and not need.fits_in(memory)):
        raise typer.Exit(_NOT_SUPPORTED)


def _as_json(report: ModelReport, dtype: LoadDtype, memory: int | None) -> dict[str, Any]:
    need = report.memory(dtype)
    values = dataclasses.asdict(report)
    del values["weights"]
    values |= {
        "is_supported": report.is_supported,
        "parameter_count": report.weights.total if report.weights else None,
        "loaded_as": dtype,
        "floats_as": dtype.floats,
        "loaded_bytes": need.weight_bytes if need else None,
        "kv_bytes_per_token": need.kv_bytes_per_token if need else None,
    }
    if memory is not None:
        values |= {
            "memory_bytes": memory,
            "is_fitting": need.fits_in(memory) if need else None,
            "kv_tokens": need.kv_tokens_in(memory) if need else None,
        }
    return values


def _show(report: ModelReport, dtype: LoadDtype, memory: int | None) -> None:
    out = Console(highlight=False)
    verdict = "[bold green]supported[/]" if report.is_supported else "[bold red]not supported[/]"
    path, what = _printable(report.path), _printable(_what(report))
    out.print(f"[bold]{escape(path)}[/] is {verdict}: {escape(what)}", soft_wrap=True)
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, text in _rows(report, dtype, memory):
        table.add_row(name, escape(text))
    if table.row_count:
        out.print(table)
    for finding in report.findings:
        _show_finding(out, finding)


def _what(report: ModelReport) -> str:
    if report.config is not None:
        names = dict.fromkeys(filter(None, (report.config.architecture, report.config.model_type)))
        return f"{report.kind}, {' of type '.join(names)}" if names else report.kind
    if report.lora is not None:
        return f"{report.kind} for {report.lora.base_model or 'a model that it does not name'}"
    return report.kind


def _rows(report: ModelReport, dtype: LoadDtype, memory: int | None) -> list[tuple[str, str]]:
    need = report.memory(dtype)
    rows = []
    if report.weights is not None and need is not None:
        files = f"{report.file_count} file{'s' if report.file_count != 1 else ''}"
        rows += [
            ("parameters", f"{report.weights.total:,}"),
            ("stored", f"{show_size(report.stored_bytes)}, {', '.join(report.dtypes)}, {files}"),
            ("loaded", f"{show_size(need.weight_bytes)} as {_held_as(report, dtype)}"),
        ]
    if lora := report.lora:
        rows.append(("LoRA", f"rank {lora.rank}, alpha {lora.alpha:g}, {lora.module_count} linears"))
    rows += _config_rows(report, dtype)
    if memory is not None and need is not None:
        rows.append((f"in {show_size(memory)}", _fitting(need, memory)))
    return rows


def _held_as(report: ModelReport, dtype: LoadDtype) -> str:
    if not dtype.is_int8 or report.lora is not None:
        return dtype.floats
    where = f"a GPU; on a CPU: {LoadDtype.INT8_CPU}" if dtype is LoadDtype.INT8 else "a CPU"
    return f"int8, the rest {dtype.floats} (on {where})"


def _config_rows(report: ModelReport, dtype: LoadDtype) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    config = report.config
    if config is None or config.kv is None:
        return rows
    kv = config.kv
    factors = f"{kv.layer_count} layers × {kv.head_count} heads × ({kv.key_size} + {kv.value_size})"
    rows.append(("KV per token", f"{show_size(kv.bytes_per_token(dtype))}: {factors} × {dtype.float_bytes} bytes"))
    if window := config.window:
        rows.append(("window", f"{window.size:,} tokens in {len(window.layers)} of {kv.layer_count} layers"))
    if config.context_size is not None:
        rows.append(("context", f"{config.context_size:,} tokens"))
    return rows


def _fitting(need: MemoryNeed, memory: int) -> str:
    if not need.fits_in(memory):
        return f"the weights do not fit: {show_size(need.weight_bytes - memory)} too much"
    tokens = need.kv_tokens_in(memory)
    return "the weights fit" if tokens is None else f"{tokens:,} tokens of KV fit beside the weights"


def _show_finding(out: Console, finding: Finding) -> None:
    style = _STYLES[finding.severity]
    out.print(f"[{style}]{finding.severity} {finding.code}[/] {escape(_printable(finding.where))}", soft_wrap=True)
    out.print(f"  {_printable(finding.message)}. {finding.fix}", markup=False, soft_wrap=True)


def _printable(text: str) -> str:
    """Names come from files of strangers, and must not steer the terminal."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
