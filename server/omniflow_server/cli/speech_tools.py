"""Speaking and listening outside the graph, by the assistant's own tools in the assistant's environment.

A process and not an import: the control plane's side knows nothing of roles, and none of torch or Piper.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from pathlib import Path

from omniflow_core.errors import OmniFlowError, Reason

_MODULE = "omniflow_roles.models.assistant.tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechTools:
    """The tools, run by the interpreter `python`."""

    python: str

    async def say(self, text: str, file: Path) -> None:
        """Speaks a text into a WAV file. Raises OmniFlowError INTERFACE_FAILED."""
        await self._run("say", text, str(file))

    async def share_read_back(self, file: Path, text: str) -> float:
        """Share of the text's words, 0 to 1, that a speech recogniser finds in a WAV file, in order. Raises OmniFlowError
        INTERFACE_FAILED."""
        return float(json.loads(await self._run("score", str(file), text))["share"])

    async def _run(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            self.python, "-m", _MODULE, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            last = err.decode(errors="replace").strip().rpartition("\n")[2]
            raise OmniFlowError(Reason.INTERFACE_FAILED, f"{_MODULE} {arguments[0]} failed: {last}")
        return out.decode()
