"""Finding a flow by its entry-point name or in a Python file.

    assistant                  entry point of the group `omniflow.flows`
    path/to/flow.py            the attribute `flow` of that file
    path/to/flow.py:other      another attribute

Both are the operator's choice, never a caller's: reading a file runs it.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import sys
import traceback
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from omniflow.dsl import Graph, GraphError
from omniflow.flow import ENTRY_POINT_GROUP, Flow
from omniflow_core.errors import OmniFlowError, Reason

DEFAULT_ATTRIBUTE = "flow"


def load_flow(reference: str) -> Flow:
    """The flow that a reference names. Raises OmniFlowError INVALID_CONFIG that says what is wrong with it."""
    found = load_object(reference)
    if not isinstance(found, Flow):
        raise _refused(f"{reference} is a {type(found).__name__}, not a Flow")
    return found


def load_graph(reference: str) -> Graph:
    """The graph of a flow, or a graph that the reference names itself. Raises OmniFlowError INVALID_CONFIG."""
    found = load_object(reference)
    if isinstance(found, Flow):
        return found.graph
    if not isinstance(found, Graph):
        raise _refused(f"{reference} is a {type(found).__name__}, neither a Flow nor a Graph")
    return found


def load_object(reference: str) -> Any:
    """Whatever a reference names."""
    path, _, attribute = reference.partition(":")
    if path.endswith(".py") or "/" in path:
        return _from_file(Path(path), attribute or DEFAULT_ATTRIBUTE)
    return _from_entry_point(reference)


def is_file_reference(reference: str) -> bool:
    """Whether a reference names a file."""
    path = reference.partition(":")[0]
    return path.endswith(".py") or "/" in path


def absolute_reference(reference: str) -> str:
    """The reference as a process in another folder can use it."""
    path, separator, attribute = reference.partition(":")
    return f"{Path(path).resolve()}{separator}{attribute}" if is_file_reference(reference) else reference


def _from_entry_point(name: str) -> Any:
    points = {point.name: point for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    if name not in points:
        raise _refused(f"there is no flow {name!r}{_nearest(name, points)}; a file is written as path/to/flow.py")
    try:
        return points[name].load()
    except Exception as problem:
        raise _refused(f"the flow {name!r} ({points[name].value}) cannot be loaded: {_cause(problem)}") from problem


def _nearest(name: str, known: dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; installed flows: {', '.join(sorted(known))}" if known else "; no flow is installed"


def _from_file(path: Path, attribute: str) -> Any:
    if not path.is_file():
        raise _refused(f"there is no file {path}")
    module = _run_file(path.resolve())
    if not hasattr(module, attribute):
        flows = [name for name, value in vars(module).items() if isinstance(value, Flow)]
        hint = (
            f"; it has {path}:{flows[0]}" if flows else f"; write `{attribute} = Flow(name=..., graph=..., roles=...)`"
        )
        raise _refused(f"{path} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def _run_file(path: Path) -> ModuleType:
    """The file as a module of its own, run once in a process."""
    name = f"omniflow_flow_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise _refused(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except GraphError as problem:
        del sys.modules[name]
        raise _refused(str(problem)) from problem  # it names its line itself
    except Exception as problem:
        del sys.modules[name]
        raise _refused(f"{path}{_line_in(path, problem)}: {_cause(problem)}") from problem
    return module


def _line_in(path: Path, problem: Exception) -> str:
    """The last line of the file that led to the error, as `:12`."""
    if isinstance(problem, SyntaxError) and problem.filename == str(path):
        return f":{problem.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


def _cause(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


def _refused(message: str) -> OmniFlowError:
    return OmniFlowError(Reason.INVALID_CONFIG, message)
