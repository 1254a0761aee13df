"""The splitter as an interface."""

from __future__ import annotations

from omniflow.testing import run_interface
from omniflow_roles.models.assistant.splitter import Splitter


async def test_splitter_yields_each_sentence() -> None:
    run = await run_interface(Splitter, passage="One. **Two!** ")
    assert run.yields == ({"sentence": "One."}, {"sentence": "Two!"})


async def test_splitter_yields_nothing_for_nothing_to_say() -> None:
    assert (await run_interface(Splitter, passage="\n\n---\n")).yields == ()


async def test_splitter_keeps_nothing_between_activations() -> None:
    splitter = Splitter()
    runs = [await run_interface(splitter, passage=passage) for passage in ("An unfinished", "sentence.")]
    assert [run.text("sentence") for run in runs] == ["An unfinished", "sentence."]
