"""Running the assistant's speech tools, with a scripted interpreter in place of its environment."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.cli.speech_tools import SpeechTools

pytestmark = pytest.mark.integration


def tools(folder: Path, code: str) -> SpeechTools:
    """Tools whose interpreter runs `code` whatever it is asked to run."""
    interpreter = folder / "python"
    interpreter.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')
    interpreter.chmod(0o700)
    return SpeechTools(python=str(interpreter))


async def test_say_passes_the_text_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "question.wav"
    code = "import pathlib, sys; pathlib.Path(sys.argv[-1]).write_text(sys.argv[-2])"
    await tools(tmp_path, code).say("why?", file)
    assert file.read_text() == "why?"


async def test_share_read_back_reads_the_score(tmp_path: Path) -> None:
    assert await tools(tmp_path, "print('{\"share\": 0.75}')").share_read_back(tmp_path / "x.wav", "words") == 0.75


async def test_a_tool_that_fails_gives_its_last_line(tmp_path: Path) -> None:
    broken = tools(tmp_path, "import sys; sys.exit('loading\\nno voice')")
    with pytest.raises(OmniFlowError, match="say failed: no voice") as caught:
        await broken.say("why?", tmp_path / "x.wav")
    assert caught.value.reason is Reason.INTERFACE_FAILED
