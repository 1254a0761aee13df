"""Errors as text."""

from __future__ import annotations

from omniflow_core.errors import OmniFlowError, Reason, Violation, invalid_field


def test_violation_that_the_message_tells_is_not_told_again() -> None:
    assert str(invalid_field("call.graph", "required")) == "INVALID_ARGUMENT (INVALID_FIELD): call.graph: required"


def test_violations_that_add_something_are_told() -> None:
    violations = [Violation(field="a", description="required"), Violation(field="b", description="too long")]
    error = OmniFlowError(Reason.INVALID_FIELD, "a: required (and 1 more)", violations=violations)
    assert str(error) == "INVALID_ARGUMENT (INVALID_FIELD): a: required (and 1 more)\n  b: too long"
