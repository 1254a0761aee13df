"""SGLang-Omni's pipeline runtime with stages that do nothing: its coordinator is in this process, requests by `submit`.

Options: `processes` is "each" for a process for each stage, "one" for one that has them all; with `project`, stages of one
process hand copies to each other, and payloads do not go through shared memory, as its own configurations do it.

Its stage processes import this file for the factories of the stages.
"""

import copy
import itertools
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from protocol import expect, main, run_calls
from sglang_omni.config.schema import PipelineConfig, StageConfig
from sglang_omni.pipeline.mp_runner import MultiProcessPipelineRunner
from sglang_omni.proto import OmniRequest
from sglang_omni.scheduling.simple_scheduler import SimpleScheduler

START_TIMEOUT_S = 300
HERE = "sglang_omni_peer"
STAGES: dict[str, dict[str, dict[str, Any]]] = {
    "chain3": {"a": {"next": "b"}, "b": {"next": "c"}, "c": {}},
    "diamond4": {"a": {"next": ["b", "c"]}, "b": {"next": "j"}, "c": {"next": "j"}, "j": {"wait_for": ["b", "c"]}},
    "fan5": {
        "pre": {"next": ["img", "aud", "agg"]},
        "img": {"next": "agg"},
        "aud": {"next": "agg"},
        "agg": {"wait_for": ["pre", "img", "aud"], "next": "out"},
        "out": {},
    },
}
REPLIES = {
    "chain3": {"raw_inputs": {"x": 1}},
    "diamond4": {"joined": ["b", "c"]},
    "fan5": {"joined": ["aud", "img", "pre"]},
}


def make_stage(model_path: str = "", **_: Any) -> SimpleScheduler:
    """A stage that gives what it is given."""
    return SimpleScheduler(lambda payload: payload)


def merge(inputs: dict[str, Any]) -> Any:
    """One payload of those that were waited for, and who they came from."""
    payload = next(iter(inputs.values()))
    payload.data = {"joined": sorted(inputs)}
    return payload


def project(payload: Any) -> Any:
    """A copy for one of several targets."""
    given = copy.copy(payload)
    given.data = copy.deepcopy(payload.data)
    return given


class SGLangOmni:
    """One pipeline."""

    system = f"sglang-omni {version('sglang-omni')}"
    control_pid = os.getpid()

    async def prepare(self, topology: str, options: dict[str, Any]) -> None:
        logging.getLogger().setLevel(logging.ERROR)
        stages = [_stage(name, links, options) for name, links in STAGES[topology].items()]
        self._runner = MultiProcessPipelineRunner(PipelineConfig(model_path="noop", stages=stages))
        await self._runner.start(timeout=START_TIMEOUT_S)
        self._wanted = REPLIES[topology]
        self._numbers = itertools.count()

    async def run(self, count: int, concurrency: int) -> list[float]:
        return await run_calls(self._call, count, concurrency)

    async def _call(self) -> None:
        reply = await self._runner.coordinator.submit(f"r{next(self._numbers)}", OmniRequest(inputs={"x": 1}))
        expect(reply, self._wanted)

    async def stop(self) -> None:
        await self._runner.stop()


def _stage(name: str, links: dict[str, Any], options: dict[str, Any]) -> StageConfig:
    more: dict[str, Any] = {"terminal": True} if "next" not in links else {}
    if "wait_for" in links:
        more["merge_fn"] = f"{HERE}.merge"
    if options.get("project") and isinstance(links.get("next"), list):
        more["project_payload"] = dict.fromkeys(links["next"], f"{HERE}.project")
    process = name if options["processes"] == "each" else "main"
    return StageConfig(name=name, factory_path=f"{HERE}.make_stage", process=process, **links, **more)


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.getenv("PYTHONPATH"))))
    main(SGLangOmni)
