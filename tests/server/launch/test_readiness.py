"""What several control planes say together."""

from __future__ import annotations

from omniflow_server.launch.readiness import Observation, Replica, agreed


def replica(process_id: int = 7, state: str = "READY", replica_id: str = "llm-0") -> Replica:
    return Replica(role="llm", replica_id=replica_id, process_id=process_id, state=state)


def seen(*replicas: Replica, is_serving: bool = True) -> Observation:
    return Observation(answering=(True,), is_serving=is_serving, replicas=replicas)


AWAY = Observation(answering=(False,))


def test_agreed_on_a_replica_that_every_control_plane_sees_ready() -> None:
    both = agreed([seen(replica()), seen(replica())])
    assert both == Observation(answering=(True, True), is_serving=True, serving_count=2, replicas=(replica(),))
    assert both.is_ready("llm", "llm-0", 7)


def test_not_agreed_on_a_replica_that_one_does_not_see_in_this_life() -> None:
    assert agreed([seen(replica()), seen()]).replicas == ()
    assert agreed([seen(replica(7)), seen(replica(6))]).replicas == ()


def test_agreed_on_the_state_that_keeps_a_replica_from_work() -> None:
    assert agreed([seen(replica()), seen(replica(state="STARTING"))]).replicas == (replica(state="STARTING"),)
    assert agreed([seen(replica(state="DRAINING")), seen(replica())]).replicas == (replica(state="DRAINING"),)


def test_a_control_plane_that_is_away_has_no_say_about_replicas_but_the_graph_is_not_served() -> None:
    both = agreed([seen(replica()), AWAY])
    assert both == Observation(answering=(True, False), serving_count=1, replicas=(replica(),))
    assert [both.is_answering(ordinal) for ordinal in range(3)] == [True, False, False]


def test_nothing_is_agreed_when_nobody_answers() -> None:
    assert agreed([AWAY, AWAY]) == Observation(answering=(False, False))
    assert agreed([]) == Observation()


def test_the_graph_is_served_when_every_control_plane_serves_it() -> None:
    assert agreed([seen(), seen()]).is_serving
    assert not agreed([seen(), seen(is_serving=False)]).is_serving


def test_graph_that_only_some_control_planes_serve_is_counted() -> None:
    seen = agreed([Observation(answering=(True,), is_serving=serving) for serving in (True, False, True)])
    assert (seen.is_serving, seen.serving_count) == (False, 2)
