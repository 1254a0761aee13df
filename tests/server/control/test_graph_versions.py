"""Shares of revisions: what canaries, promotions and rollbacks move, and what is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.graph_versions import (
    MAX_REVISIONS,
    PLACES,
    GraphVersions,
    Revision,
    place_of,
    split,
)

AFFINITIES = [f"sessions/{i}" for i in range(2_000)]


def revision(name: str, create_time_ms: int = 0) -> Revision:
    message = graph_spec_pb2.GraphSpec(name="graphs/demo", revision=name)
    return Revision(message=message, create_time_ms=create_time_ms)


def versions(**shares: int) -> GraphVersions:
    """Revisions, the oldest first, with their shares."""
    first, *others = shares
    made = GraphVersions.first(revision(first))
    for name in others:
        made = made.adding(revision(name), 0)
    return made.with_shares(list(shares.items()))


def chosen(made: GraphVersions) -> dict[str, str]:
    return {affinity: made.choose(affinity) for affinity in AFFINITIES}


def moved(before: GraphVersions, after: GraphVersions) -> set[tuple[str, str]]:
    """From where to where affinities went."""
    was, is_now = chosen(before), chosen(after)
    return {(was[a], is_now[a]) for a in AFFINITIES if was[a] != is_now[a]}


# --- adding -------------------------------------------------------------------------------------------------------------


def test_first_revision_takes_all_calls() -> None:
    made = GraphVersions.first(revision("v1"))
    assert (made.shares, made.main, made.graph) == ({"v1": 100}, "v1", "graphs/demo")


@pytest.mark.parametrize("canary_percent", [None, 100])
def test_added_revision_takes_all_calls_unless_it_is_a_canary(canary_percent: int | None) -> None:
    assert versions(v1=70, v2=30).adding(revision("v3"), canary_percent).shares == {"v1": 0, "v2": 0, "v3": 100}


@pytest.mark.parametrize(
    ("percent", "shares"),
    [
        (0, {"v1": 70, "v2": 30, "v3": 0}),
        (10, {"v1": 63, "v2": 27, "v3": 10}),
        (25, {"v1": 53, "v2": 22, "v3": 25}),  # 52.5 and 22.5: of equal remainders the older's is rounded up
        (99, {"v1": 1, "v2": 0, "v3": 99}),
    ],
)
def test_canary_leaves_the_others_their_proportions(percent: int, shares: dict[str, int]) -> None:
    made = versions(v1=70, v2=30).adding(revision("v3"), percent)
    assert sum(made.shares.values()) == 100
    assert made.shares == shares


def test_revision_that_is_kept_keeps_its_age_and_only_shares_change() -> None:
    made = versions(v1=0, v2=100)
    again = made.adding(revision("v1", create_time_ms=9), 20)
    assert again.shares == {"v1": 20, "v2": 80}
    assert again.revisions == made.revisions


def test_change_that_changes_nothing_is_the_same_value() -> None:
    made = versions(v1=90, v2=10)
    assert made.adding(revision("v2"), 10) is made
    assert made.with_shares([("v2", 10), ("v1", 90)]) is made


def test_canary_of_the_only_revision_has_all_calls() -> None:
    made = GraphVersions.first(revision("v1"))
    assert made.adding(revision("v1"), 10) is made


def test_canary_of_the_revision_that_has_all_calls_is_refused_while_others_have_none() -> None:
    with pytest.raises(OmniFlowError, match="no other has a share to keep; set the shares of both") as caught:
        versions(v1=0, v2=100).adding(revision("v2"), 10)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in caught.value.violations] == ["canary_percent"]


# --- what is kept -------------------------------------------------------------------------------------------------------


def test_oldest_revision_without_a_share_is_dropped_for_one_too_many() -> None:
    made = versions(**{"v1": 60, **{f"v{i}": 0 for i in range(2, MAX_REVISIONS)}, "v8": 40})
    added = made.adding(revision("v9"), 10)
    assert added.names == ("v1", "v3", "v4", "v5", "v6", "v7", "v8", "v9")
    assert added.shares == {"v1": 54, "v3": 0, "v4": 0, "v5": 0, "v6": 0, "v7": 0, "v8": 36, "v9": 10}


def test_revision_without_a_share_of_its_own_is_not_the_one_that_is_dropped() -> None:
    made = versions(**{"v1": 0, **{f"v{i}": 10 for i in range(2, 8)}, "v8": 40})
    assert made.adding(revision("v9"), 0).names == (*(f"v{i}" for i in range(2, 9)), "v9")


def test_ninth_revision_beside_eight_with_shares_is_refused() -> None:
    made = versions(**{f"v{i}": 10 for i in range(1, 8)}, v8=30)
    with pytest.raises(OmniFlowError, match="8 revisions of graphs/demo have a share") as caught:
        made.adding(revision("v9"), 10)
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    assert made.adding(revision("v9")).names == (*(f"v{i}" for i in range(2, 9)), "v9"), (
        "all calls: the others lose theirs"
    )


def test_revision_is_found_and_a_missing_one_names_the_kept() -> None:
    made = versions(v1=90, v2=10)
    assert made.find("v1") is made.revisions[0]
    with pytest.raises(OmniFlowError) as caught:
        made.find("v3")
    assert caught.value.reason is Reason.UNKNOWN_RESOURCE
    assert caught.value.message == "graphs/demo has no revision 'v3'; kept, the newest first: v2, v1."


@pytest.mark.parametrize(
    ("shares", "main"),
    [({"v1": 60, "v2": 40}, "v1"), ({"v1": 50, "v2": 50}, "v2"), ({"v1": 50, "v2": 50, "v3": 0}, "v2")],
)
def test_main_revision_has_the_largest_share_and_is_the_newest_of_several(shares: dict[str, int], main: str) -> None:
    assert versions(**shares).main == main


# --- shares -------------------------------------------------------------------------------------------------------------


def test_shares_are_set_and_who_is_not_named_gets_none() -> None:
    assert versions(v1=90, v2=10, v3=0).with_shares([("v3", 25), ("v1", 75)]).shares == {"v1": 75, "v2": 0, "v3": 25}


@pytest.mark.parametrize(
    ("shares", "faults"),
    [
        ([], {"shares": "they add up to 0, they must to 100"}),
        ([("v1", 90)], {"shares": "they add up to 90, they must to 100"}),
        (
            [("v1", 50), ("v9", 50)],
            {"shares[1].revision": "graphs/demo has no revision 'v9'; kept, the newest first: v2, v1"},
        ),
        ([("v1", 50), ("v1", 50)], {"shares[1].revision": "'v1' is named twice"}),
        (
            [("v1", 60), ("x", 60), ("v1", 1)],
            {
                "shares[1].revision": "graphs/demo has no revision 'x'; kept, the newest first: v2, v1",
                "shares[2].revision": "'v1' is named twice",
                "shares": "they add up to 121, they must to 100",
            },
        ),
    ],
)
def test_shares_that_cannot_be_are_refused_with_every_fault(
    shares: list[tuple[str, int]], faults: dict[str, str]
) -> None:
    with pytest.raises(OmniFlowError) as caught:
        versions(v1=90, v2=10).with_shares(shares)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert {violation.field: violation.description for violation in caught.value.violations} == faults
    first = caught.value.violations[0]
    assert caught.value.message == f"{first.field}: {first.description}"


# --- affinities ---------------------------------------------------------------------------------------------------------


def test_affinities_fall_into_places_evenly_and_apart_from_those_of_other_graphs() -> None:
    places = [place_of("graphs/demo", affinity) for affinity in AFFINITIES]
    assert set(places) == set(range(PLACES))
    assert max(map(places.count, range(PLACES))) < 45  # 20 expected
    assert places != [place_of("graphs/other", affinity) for affinity in AFFINITIES]
    assert (place_of("graphs/demo", "sessions/anna"), place_of("graphs/demo", "")) == (74, 8), "in every process"


def test_shares_are_those_of_affinities() -> None:
    counts = list(chosen(versions(v1=70, v2=30)).values()).count("v2")
    assert 500 < counts < 700  # 600 expected of 2,000


def test_widened_canary_moves_affinities_into_the_canary_only() -> None:
    made = versions(v1=50, v2=50).adding(revision("v3"), 1)
    for percent in (2, 5, 10, 33, 50, 99, 100):
        wider = made.adding(revision("v3"), percent)
        assert moved(made, wider) <= {("v1", "v3"), ("v2", "v3")}
        made = wider
    assert set(chosen(made).values()) == {"v3"}


def test_ended_canary_gives_affinities_back_and_takes_the_same_ones_the_next_time() -> None:
    before = versions(v1=100)
    canary = before.adding(revision("v2"), 10)
    ended = canary.with_shares([("v1", 100)])
    assert moved(canary, ended) == {("v2", "v1")}
    assert chosen(ended) == chosen(before)
    assert chosen(ended.adding(revision("v2"), 10)) == chosen(canary)


_PERCENTS = st.lists(st.integers(0, 100), min_size=1, max_size=7).map(
    lambda cuts: [b - a for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), 100], strict=True)]
)
"""Shares of two to eight revisions."""


@given(percents=_PERCENTS, canary=st.integers(0, 100))
def test_shares_add_up_and_a_canary_moves_as_little_as_it_can(percents: list[int], canary: int) -> None:
    made = versions(**{f"v{i}": percent for i, percent in enumerate(percents)})
    assert [made.shares[f"v{i}"] for i in range(len(percents))] == percents
    try:
        after = made.adding(revision("new"), canary)
    except OmniFlowError as refused:
        assert refused.reason is Reason.QUOTA_EXCEEDED
        assert len([p for p in percents if p]) == MAX_REVISIONS
        return
    assert sum(after.shares.values()) == PLACES == len(after.places)
    assert after.shares["new"] == canary
    places = [(a, b) for a, b in zip(made.places, after.places, strict=True) if a != b]
    assert {b for _, b in places} <= {"new"}
    assert len(places) == canary


@given(first=_PERCENTS, second=_PERCENTS)
def test_change_of_shares_moves_no_more_places_than_it_must(first: list[int], second: list[int]) -> None:
    count = max(len(first), len(second))
    before, after = ([*percents, *([0] * (count - len(percents)))] for percents in (first, second))
    made = versions(**{f"v{i}": percent for i, percent in enumerate(before)})
    changed = made.with_shares([(f"v{i}", percent) for i, percent in enumerate(after)])
    assert list(changed.shares.values()) == after
    differing = sum(a != b for a, b in zip(made.places, changed.places, strict=True))
    assert differing == sum(max(0, b - a) for a, b in zip(before, after, strict=True))


@given(percents=_PERCENTS, whole=st.integers(0, 100))
def test_split_adds_up_and_differs_from_the_proportions_by_less_than_one(percents: list[int], whole: int) -> None:
    parts = split(whole, {str(i): percent for i, percent in enumerate(percents)})
    assert sum(parts.values()) == whole
    for i, percent in enumerate(percents):
        assert abs(parts[str(i)] - percent * whole / 100) < 1
        assert parts[str(i)] <= percent
