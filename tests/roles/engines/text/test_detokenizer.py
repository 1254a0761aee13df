"""Text of drawn tokens, piece by piece, in whole characters."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

from hypothesis import given, settings
from hypothesis import strategies as st

from omniflow_roles.engines.text.detokenizer import Detokenizer
from tests.roles.engines import small_tokenizers

pytestmark = pytest.mark.assistant

BROKEN = "\N{REPLACEMENT CHARACTER}"
AWKWARD = [
    "a",
    "b",
    " ",
    "  ",
    "the ",
    "👍🏽",
    "👩‍👩‍👧",
    "你",
    "好",
    "é",
    "e\u0301",
    "\n",
    ".",
    "ﷺ",
    BROKEN,
    "\0",
    "🇫🇷",
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.lists(
    st.sampled_from(AWKWARD), max_size=30
).map("".join)


@functools.cache
def tokenizer_of(kind: str) -> Any:
    if kind == "byte fallback, blank kept":
        return small_tokenizers.byte_fallback(strips_first_blank=False)
    return getattr(small_tokenizers, kind.replace(" ", "_"))()


KINDS = ["byte level", "byte fallback", "byte fallback, blank kept", "metaspace", "word piece"]
BYTES = KINDS[:3]


def pieces_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_pieces_joined_are_the_whole_decoded(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", BYTES)
@settings(max_examples=100, deadline=None)
@given(text=texts.filter(lambda text: BROKEN not in text))
def test_pieces_never_hold_a_part_of_a_character(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    pieces = pieces_of(tokenizer, tokenizer.encode(text, add_special_tokens=False).ids)
    assert BROKEN not in "".join(pieces)
    assert pieces[-1] == ""


@settings(max_examples=300, deadline=None)
@given(ids=st.lists(st.integers(0, 257), max_size=60))
def test_pieces_of_any_bytes_joined_are_the_whole_decoded(ids: list[int]) -> None:
    """A model may draw what is no text; byte-level tokenizers."""
    tokenizer = tokenizer_of("byte level")
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_tokens_are_taken_and_no_letter_is_lost(kind: str, data: st.DataObject) -> None:
    """Also ids that are no tokens, as a padded vocabulary has them."""
    tokenizer = tokenizer_of(kind)
    ids = data.draw(st.lists(st.integers(0, tokenizer.get_vocab_size() + 5), max_size=60))
    found, expected = "".join(pieces_of(tokenizer, ids)), tokenizer.decode(ids)
    if BROKEN not in expected or not kind.startswith("byte fallback"):
        assert found == expected
    rest = iter(found.replace(BROKEN, ""))
    assert all(letter in rest for letter in expected.replace(BROKEN, ""))


@pytest.mark.parametrize("kind", BYTES)
def test_an_emoji_comes_out_with_its_last_byte(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    ids = tokenizer.encode("a😀b").ids
    pieces = pieces_of(tokenizer, ids)
    assert [piece for piece in pieces if piece] == ["a", "😀", "b"]
    assert pieces[-3:] == ["😀", "b", ""]


@pytest.mark.parametrize("kind", BYTES)
def test_a_broken_end_comes_out_as_it_is_decoded_at_once(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    ids = tokenizer.encode("a 😀").ids[:-1]
    pieces = pieces_of(tokenizer, ids)
    assert BROKEN not in "".join(pieces[:-1])
    assert pieces[-1].strip(BROKEN) == ""
    assert "".join(pieces) == tokenizer.decode(ids)
    assert tokenizer.decode(ids).endswith(BROKEN)


def test_characters_stay_when_bytes_after_them_are_no_text() -> None:
    """Decoded at once, byte fallback turns the whole run into replacement characters; a good one is out by then."""
    tokenizer = tokenizer_of("byte fallback")
    run = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "é".encode() + b"\xff"]
    word = tokenizer.token_to_id("▁the")
    assert tokenizer.decode([*run, word]) == BROKEN * 3 + " the"
    assert pieces_of(tokenizer, [*run, word]) == ["", "é", "", BROKEN + " the", ""]
    assert pieces_of(tokenizer, run) == ["", "é", "", BROKEN]


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_have_no_text_and_cost_no_blank(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    end = tokenizer.token_to_id(small_tokenizers.END)
    ids = tokenizer.encode("the quick fox").ids
    spread = [token for word in ids for token in (end, word, end)] + [end] * 100 + ids
    assert "".join(pieces_of(tokenizer, spread)) == tokenizer.decode(spread)


def test_text_without_an_end_of_a_character_is_not_held_back_for_ever() -> None:
    """Tokens that each end in the middle of a character: merged across it, as training on little Chinese does."""
    from tokenizers import Tokenizer, decoders, models

    byte_letters = small_tokenizers.byte_level().encode("好").tokens
    letters = [letter for token in byte_letters for letter in token]
    first, across = letters[0], "".join(letters[1:]) + letters[0]
    tokenizer = Tokenizer(models.WordLevel({first: 0, across: 1, "".join(letters[1:]): 2}, unk_token=first))
    tokenizer.decoder = decoders.ByteLevel()
    ids = [0] + [1] * 200 + [2]
    pieces = pieces_of(tokenizer, ids)
    assert pieces == ["", *["好"] * 201, ""]


@pytest.mark.parametrize("size", range(26, 40))
def test_a_character_after_many_bytes_that_are_no_text_is_whole(size: int) -> None:
    """However many of them are held when the work for a token is cut down."""
    tokenizer = tokenizer_of("byte level")
    emoji = [tokenizer.token_to_id(letter) for token in tokenizer.encode("😀").tokens for letter in token]
    ids = [emoji[-1]] * size + emoji + [emoji[0]] * size + emoji
    assert len(emoji) == 4
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids) == (BROKEN * size + "😀") * 2


@pytest.mark.parametrize("kind", BYTES)
def test_work_for_a_token_does_not_grow(kind: str) -> None:
    """The most tokens that are decoded at once, over texts, bytes that are no text and tokens that have none."""
    tokenizer = tokenizer_of(kind)
    lengths: list[int] = []

    class Recording:
        def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
            lengths.append(len(ids))
            return str(tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))

    last = tokenizer.encode("😀").ids[-1]
    end = tokenizer.token_to_id(small_tokenizers.END)
    ids = tokenizer.encode("the quick 😀 fox 你好 " * 50).ids + [last] * 500 + [end] * 500
    detokenizer = Detokenizer(Recording())
    for token in ids:
        detokenizer.push(token)
    detokenizer.flush()
    assert len(lengths) <= 3 * len(ids) + 2
    assert max(lengths) <= 80


def test_pieces_of_the_assistants_tokenizer_joined_are_the_whole_decoded() -> None:
    from transformers import PreTrainedTokenizerFast

    from omniflow_roles.models.assistant.checkpoint import gguf_file

    file = gguf_file()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    backend = tokenizer.backend_tokenizer
    text = "Hello, world! 👍🏽 👩‍👩‍👧 naïve 你好，世界 ﷺ \U000103a0 e\u0301\n\n  def f(x): return x**2  # 🇫🇷"
    ids = backend.encode(text + "<|im_end|>" + text, add_special_tokens=False).ids
    pieces = pieces_of(backend, ids)
    assert "".join(pieces) == text * 2
    assert BROKEN not in "".join(pieces)
    assert len([piece for piece in pieces if piece]) > len(ids) // 2
