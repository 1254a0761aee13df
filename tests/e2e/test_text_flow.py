"""The flow `text` with real processes and real weights: a model is loaded while the role runs, answers, and goes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest

import omniflow
from omniflow.flow_loading import load_flow
from omniflow_core.errors import OmniFlowError, Reason
from tests.support.system import running_system

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(600)]

SAMPLING = omniflow.Sampling(temperature=0.0, max_tokens=16)
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"capital": {"enum": ["Paris", "Rome"]}},
        "required": ["capital"],
        "additionalProperties": False,
    }
)


def weights() -> Path:
    """The GGUF file of the assistant's environment."""
    script = "from omniflow_roles.models.assistant import checkpoint; print(checkpoint.gguf_file())"
    python = os.environ["OMNIFLOW_ENVIRONMENTS_ASSISTANT"]
    found = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())


async def test_model_is_loaded_into_a_running_role_and_answers_in_any_form(tmp_path: Path) -> None:
    (tmp_path / "smollm2").mkdir()
    (tmp_path / "smollm2" / "smollm2.gguf").symlink_to(weights())
    (role,) = load_flow("text").roles
    role = dataclasses.replace(role, env={"OMNIFLOW_MODEL_ROOT": str(tmp_path)})
    async with running_system("text", roles=[role], ready_timeout_s=60.0) as system, system.connect() as client:
        with pytest.raises(OmniFlowError) as none_yet:
            await client.run("text", request=omniflow.Json({"prompt": "Hi"}), sampling=SAMPLING)
        assert none_yet.value.reason is Reason.INVALID_FIELD
        answer = (await client.run("text", manage=omniflow.Json({"load": "smollm2"}))).value("answer")
        assert isinstance(answer, omniflow.Json)
        assert [model["name"] for model in answer.value["models"]] == ["smollm2"]
        assert answer.value["models"][0]["dtype"] == "int8"

        chat = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "model": "smollm2"}
        result = await client.run("text", request=omniflow.Json(chat), sampling=SAMPLING)
        assert "Paris" in result.text("text")
        assert result.finished.usage.output_tokens <= 16

        constrained = dataclasses.replace(SAMPLING, json_schema=SCHEMA, max_tokens=200)
        result = await client.run("text", request=omniflow.Json(chat), sampling=constrained)
        assert json.loads(result.text("text"))["capital"] in ("Paris", "Rome")

        several = dataclasses.replace(SAMPLING, temperature=1.0, seed=5, completions=3)
        result = await client.run("text", request=omniflow.Json({"prompt": "Once upon a time"}), sampling=several)
        assert len({result.text("text", completion=index) for index in range(3)}) == 3

        gone = (await client.run("text", manage=omniflow.Json({"unload": "smollm2"}))).value("answer")
        assert isinstance(gone, omniflow.Json)
        assert gone.value["models"] == []
