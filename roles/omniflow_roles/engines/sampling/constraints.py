"""Answers that follow a JSON schema or a regular expression: which tokens may come next. llguidance does the work.

    {"type": "boolean"}     mask: t f tr fa true false ...     advance("tr")     mask: u ue     advance("ue")     finished

Each token is looked at as bytes, so a character may be spelt by several. What llguidance leaves out of JSON Schema (`not`,
`if`) and of regular expressions (look-around, back references) is refused before anything is generated. Its own limits bound
the time of a mask to some tens of milliseconds, whatever the text; 0.02 ms are usual once a grammar's states have been seen.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from llguidance import LLMatcher  # type: ignore[import-not-found]
from llguidance.hf import from_tokenizer  # type: ignore[import-not-found]

from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_roles.engines.sampling.plan import SamplingPlan

_KEPT = 32
"""Grammars that stay compiled: a large schema takes 100 ms, a copy of its start 0.02 ms, and callers repeat themselves."""

_BLANKS = r"[\x20\x0A\x0D\x09]{1,64}"
"""Blanks in a row between the parts of JSON: enough to indent by. Without a bound a model can go on with them for ever."""

_SILENT = 0


class ConstraintCompiler:
    """Compiles constraints for one tokenizer. Made once for a model: it takes half a second. Threads may share it."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        vocabulary_size: int | None = None,
        end_token_ids: Collection[int] | None = None,
    ) -> None:
        """`tokenizer` is a fast one of transformers. `vocabulary_size` is the width of the logits, that of the tokenizer
        when None; a wider one has ids at its end that are no tokens and never allowed. `end_token_ids` end an answer, the
        tokenizer's own when None. Raises INVALID_CONFIG when there are none.
        """
        own = tokenizer.eos_token_id
        ends = sorted(end_token_ids if end_token_ids is not None else () if own is None else (own,))
        if not ends:
            raise OmniFlowError(
                Reason.INVALID_CONFIG, "the tokenizer names no end token, so no constraint could ever end"
            )
        self._ends = frozenset(ends)
        self._vocabulary_size = len(tokenizer) if vocabulary_size is None else vocabulary_size
        self._tokenizer = from_tokenizer(tokenizer, n_vocab=max(self._vocabulary_size, len(tokenizer)), eos_token=ends)
        self._compiled: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, plan: SamplingPlan) -> Constraint:
        """A constraint at its start, for one completion of a plan that is constrained.

        Raises INVALID_FIELD for call.sampling.json_schema or call.sampling.regex when it cannot be followed.
        """
        field, text = ("regex", plan.regex) if plan.json_schema is None else ("json_schema", plan.json_schema)
        assert text is not None, "the plan has no constraint"
        with self._lock:
            matcher = self._compiled.get((field, text))
        if matcher is None:
            matcher = self._compile(field, text)
        with self._lock:
            self._compiled[field, text] = matcher
            self._compiled.move_to_end((field, text))
            if len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
            matcher = matcher.deep_copy()
        return Constraint(matcher, f"call.sampling.{field}", self._vocabulary_size, self._ends)

    def _compile(self, field: str, text: str) -> Any:
        grammar = _json_grammar(text) if field == "json_schema" else LLMatcher.grammar_from_regex(text)
        matcher = LLMatcher(self._tokenizer, grammar, log_level=_SILENT)
        matcher.compute_bitmask()  # some things are only found out here; what it computes serves all copies
        if matcher.is_error():
            raise invalid_field(f"call.sampling.{field}", _REFUSED[field])
        return matcher


class Constraint:
    """What one completion may go on with. Kept by the host, over preemptions too. Not thread-safe."""

    def __init__(self, matcher: Any, field_path: str, vocabulary_size: int, ends: frozenset[int]) -> None:
        self._matcher = matcher
        self._field_path = field_path
        self._vocabulary_size = vocabulary_size
        self._ends = ends

    @property
    def is_finished(self) -> bool:
        """Nothing but an end token may follow: the text is complete, and cannot be longer."""
        return bool(self._matcher.is_stopped())

    def mask(self) -> torch.Tensor:
        """[V] bool on the CPU, True for the tokens that may come next; end tokens exactly when the text may end here.

        Raises INVALID_FIELD when the constraint turns out too complex.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        allowed = np.unpackbits(bits, count=self._vocabulary_size, bitorder="little")
        return torch.from_numpy(allowed.view(np.bool_))

    def advance(self, token: int) -> None:
        """The token that was drawn, an end token included.

        Raises ValueError for one that the mask does not allow, INVALID_FIELD when the constraint turns out too complex.
        """
        if self.is_finished and token in self._ends:
            return
        is_id = 0 <= token < self._vocabulary_size  # any other would leave the matcher in an error
        if not is_id or self._matcher.try_consume_tokens([token]) != 1:
            self._check()
            raise ValueError(f"token {token} is not allowed here")
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise invalid_field(self._field_path, "it is too complex: the answer cannot be held to it any further")


_REFUSED = {
    "json_schema": "it is no JSON schema that can be followed: it allows nothing, is not valid, or has a keyword that is "
    "not supported",
    "regex": "it is no regular expression that can be followed: it is not valid, or has look-around, a word boundary or a "
    "back reference",
}


def _json_grammar(text: str) -> str:
    path = "call.sampling.json_schema"
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        raise invalid_field(path, f"it is no JSON: line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise invalid_field(path, "it is nested too deeply") from None
    if schema is True:  # everything is allowed; options can only be put into an object
        schema = {}
    if not isinstance(schema, dict):
        raise invalid_field(path, _REFUSED["json_schema"])
    try:
        return str(LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_pattern": _BLANKS}))
    except ValueError:
        raise invalid_field(path, _REFUSED["json_schema"]) from None
