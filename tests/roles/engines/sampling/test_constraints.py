"""Answers that follow a JSON schema or a regular expression."""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("llguidance")

from omniflow_core.errors import OmniFlowError, Reason  # noqa: E402
from omniflow_roles.engines.sampling.constraints import Constraint, ConstraintCompiler  # noqa: E402
from omniflow_roles.engines.sampling.plan import SamplingPlan  # noqa: E402
from tests.roles.engines import small_tokenizers  # noqa: E402

pytestmark = pytest.mark.assistant

PADDING = 77
KINDS = {
    "byte level": small_tokenizers.byte_level,
    "byte fallback": lambda: small_tokenizers.byte_fallback(strips_first_blank=False),
}
PERSON = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 6},
            "age": {"type": "integer", "minimum": 0, "maximum": 99},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "é"]}, "maxItems": 2},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)
EXPRESSIONS = [r"a+b?", r"(the |quick )*fox", r"[0-9]{2}:[0-9]{2}", r"(你好|é😀){1,3}", r"^ab$", r"", r"(?i)ab[cx]*"]


@functools.cache
def tokenizer_of(kind: str) -> Any:
    return small_tokenizers.fast(KINDS[kind]())


@functools.cache
def compiler_of(kind: str) -> ConstraintCompiler:
    return ConstraintCompiler(tokenizer_of(kind), vocabulary_size=len(tokenizer_of(kind)) + PADDING)


def constrained(kind: str = "byte level", **constraint: str) -> Constraint:
    return compiler_of(kind).compile(SamplingPlan(max_tokens=1, **constraint))  # type: ignore[arg-type]


def end_of(kind: str) -> int:
    return int(tokenizer_of(kind).eos_token_id)


def random_answer(
    constraint: Constraint, kind: str, rng: random.Random, see: Callable[[list[int], Sequence[bool]], None]
) -> list[int]:
    """Tokens drawn from the masks until the end token, which is not given; `see` is shown the tokens before and the mask."""
    tokens: list[int] = []
    for _ in range(400):
        mask = constraint.mask().tolist()
        see(tokens, mask)
        allowed = [token for token, is_allowed in enumerate(mask) if is_allowed]
        assert allowed, "an answer can always go on or end"
        # Ends soon, so that strings of any length do not go on for ever.
        token = end_of(kind) if mask[end_of(kind)] and (len(tokens) > 60 or len(allowed) == 1) else rng.choice(allowed)
        constraint.advance(token)
        if token == end_of(kind):
            return tokens
        tokens.append(token)
    return tokens


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_random_answers_match_the_expression_and_may_end_exactly_where_it_does(kind: str, expression: str) -> None:
    tokenizer, rng = tokenizer_of(kind), random.Random(1)

    def see(tokens: list[int], mask: Sequence[bool]) -> None:
        assert mask[end_of(kind)] is bool(re.fullmatch(expression, tokenizer.backend_tokenizer.decode(tokens)))

    for _ in range(12):
        tokens = random_answer(constrained(kind, regex=expression), kind, rng, see)
        assert re.fullmatch(expression, tokenizer.backend_tokenizer.decode(tokens))


@pytest.mark.parametrize("kind", KINDS)
def test_random_answers_are_json_of_the_schema(kind: str) -> None:
    tokenizer, rng = tokenizer_of(kind), random.Random(2)
    for _ in range(25):
        tokens = random_answer(constrained(kind, json_schema=PERSON), kind, rng, lambda *_: None)
        person = json.loads(tokenizer.backend_tokenizer.decode(tokens))
        assert set(person) <= {"name", "age", "tags"}
        assert len(person["name"]) <= 6
        assert 0 <= person["age"] <= 99
        assert len(person.get("tags", [])) <= 2
        assert set(person.get("tags", [])) <= {"a", "b", "é"}


@pytest.mark.parametrize("kind", KINDS)
def test_blanks_between_parts_of_json_come_to_an_end(kind: str) -> None:
    constraint = constrained(kind, json_schema='{"type": "object"}')
    tokenizer = tokenizer_of(kind)
    constraint.advance(tokenizer.encode("{", add_special_tokens=False)[-1])
    blanks = tokenizer.encode("\n", add_special_tokens=False)
    taken = 0
    while taken < 200 and constraint.mask()[blanks[0]]:
        for token in blanks:
            constraint.advance(token)
        taken += 1
    assert taken == 64


@pytest.mark.parametrize("kind", KINDS)
def test_mask_is_as_wide_as_the_logits_and_allows_no_padding(kind: str) -> None:
    mask = constrained(kind, regex=r"(?s).*").mask()
    size = len(tokenizer_of(kind))
    assert (mask.shape, mask.dtype, mask.device.type) == ((size + PADDING,), torch.bool, "cpu")
    assert mask[:size].sum() > size // 2
    assert not mask[size:].any()


def test_mask_may_be_narrower_than_the_tokenizer() -> None:
    """Tokens that were added after the model was trained have no logits."""
    tokenizer = tokenizer_of("byte level")
    compiler = ConstraintCompiler(tokenizer, vocabulary_size=len(tokenizer) - 3)
    mask = compiler.compile(SamplingPlan(max_tokens=1, regex=".*")).mask()
    assert mask.equal(constrained(regex=".*").mask()[: len(tokenizer) - 3])


def test_mask_never_allows_other_special_tokens() -> None:
    mask = constrained(regex=r"(?s).*").mask()
    assert mask[end_of("byte level")]
    assert not mask[tokenizer_of("byte level").bos_token_id]


def test_every_end_token_ends_an_answer() -> None:
    tokenizer = tokenizer_of("byte level")
    ends = {tokenizer.eos_token_id, tokenizer.bos_token_id}
    compiler = ConstraintCompiler(tokenizer, end_token_ids=ends)
    for end in ends:
        constraint = compiler.compile(SamplingPlan(max_tokens=1, regex="a?"))
        assert all(constraint.mask()[token] for token in ends)
        constraint.advance(end)
        assert constraint.is_finished


def test_finished_is_what_cannot_be_longer() -> None:
    [a], [b] = ([tokenizer_of("byte level").convert_tokens_to_ids(letter)] for letter in "ab")
    constraint = constrained(regex="a+b")
    states = []
    for token in (a, a, b):
        states.append((constraint.is_finished, bool(constraint.mask()[end_of("byte level")])))
        constraint.advance(token)
    assert states == [(False, False)] * 3
    assert constraint.is_finished
    assert constraint.mask().nonzero()[:, 0].tolist() == [end_of("byte level")]
    open_ended = constrained(regex="a+")
    open_ended.advance(a)
    assert not open_ended.is_finished
    assert open_ended.mask()[end_of("byte level")]


def test_constraints_of_one_grammar_do_not_share_their_state() -> None:
    a = tokenizer_of("byte level").convert_tokens_to_ids("a")
    first, second = constrained(regex="ab"), constrained(regex="ab")
    first.advance(a)
    assert second.mask()[a]
    assert not first.mask()[a]
    assert constrained(regex="ab").mask().equal(second.mask())


def test_many_grammars_are_compiled_one_after_another() -> None:
    a = tokenizer_of("byte level").convert_tokens_to_ids("a")
    for size in range(1, 70):
        assert constrained(regex=f"a{{{size}}}").mask()[a]
    assert len(compiler_of("byte level")._compiled) == 32


@pytest.mark.parametrize("token", ["b", "<end>", "<begin>"])
def test_advance_refuses_what_the_mask_does_not_allow(token: str) -> None:
    constraint = constrained(regex="aa")
    with pytest.raises(ValueError, match="not allowed"):
        constraint.advance(tokenizer_of("byte level").convert_tokens_to_ids(token))
    with pytest.raises(ValueError, match="not allowed"):
        constraint.advance(len(tokenizer_of("byte level")) + 3)
    assert constraint.mask()[tokenizer_of("byte level").convert_tokens_to_ids("a")]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("regex", "("),
        ("regex", "a(?=b)"),
        ("regex", r"(a)\1"),
        ("regex", r"\bfoo\b"),
        ("regex", "a^b"),
        ("json_schema", "nope"),
        ("json_schema", ""),
        ("json_schema", "null"),
        ("json_schema", "[1]"),
        ("json_schema", '"string"'),
        ("json_schema", "false"),
        ("json_schema", '{"type": "person"}'),
        ("json_schema", '{"not": {"type": "string"}}'),
        ("json_schema", '{"type": "string", "pattern": "("}'),
        ("json_schema", '{"type": "integer", "minimum": 3, "maximum": 2}'),
        ("json_schema", '{"$ref": "http://example.org/schema"}'),
        ("json_schema", "[" * 60_000),
        ("json_schema", '{"not": ' * 500 + "{}" + "}" * 500),
    ],
)
def test_what_cannot_be_followed_is_refused_by_its_field(field: str, text: str) -> None:
    with pytest.raises(OmniFlowError) as caught:
        constrained(**{field: text})
    assert caught.value.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in caught.value.violations] == [f"call.sampling.{field}"]
    assert not re.search(r"llguidance|lark|parse|Unimplemented|retriev|panic|\n", caught.value.message)


def test_broken_json_is_said_where() -> None:
    with pytest.raises(OmniFlowError, match="line 2, column 3"):
        constrained(json_schema='{\n  type: "object"}')


def test_constraint_that_turns_out_too_complex_is_the_callers_error() -> None:
    from llguidance import LLMatcher, LLParserLimits
    from llguidance.hf import from_tokenizer

    tokenizer = from_tokenizer(tokenizer_of("byte level"))
    limits = LLParserLimits(step_lexer_fuel=10, step_max_items=10)
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema("{}"), log_level=0, limits=limits)
    with pytest.raises(OmniFlowError, match=r"call\.sampling\.json_schema.*too complex"):
        Constraint(matcher, "call.sampling.json_schema", 400, frozenset()).mask()
    with pytest.raises(OmniFlowError, match="too complex"):
        Constraint(matcher, "call.sampling.json_schema", 400, frozenset()).advance(3)


def test_tokenizer_without_an_end_token_cannot_be_constrained() -> None:
    tokenizer = small_tokenizers.fast(small_tokenizers.byte_level())
    tokenizer.eos_token = None
    with pytest.raises(OmniFlowError) as caught:
        ConstraintCompiler(tokenizer)
    assert caught.value.reason is Reason.INVALID_CONFIG
