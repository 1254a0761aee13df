"""When a process that died is started again."""

from __future__ import annotations

import pytest

from omniflow_server.launch.restarts import Death, RestartPolicy, Restarts

POLICY = RestartPolicy(delay_s=0.2, delay_max_s=1.0, stable_after_s=10.0, max_failed_starts=3)


def died(status: int = 1, *, ready_for_s: float | None = None) -> Death:
    return Death(status=status, ready_for_s=ready_for_s)


def after(*deaths: Death) -> Restarts:
    history = Restarts()
    for death in deaths:
        history = history.after(death, POLICY)
    return history


def test_delay_doubles_with_each_death_up_to_the_longest() -> None:
    delays = [after(*[died(ready_for_s=0.0)] * count).delay_s(POLICY) for count in (1, 2, 3, 4, 5000)]
    assert delays == [0.2, 0.4, 0.8, 1.0, 1.0]


def test_delay_starts_again_after_a_stable_life() -> None:
    history = after(died(ready_for_s=0.0), died(ready_for_s=0.0), died(ready_for_s=10.0))
    assert history.delay_s(POLICY) == 0.2


def test_is_hopeless_after_too_many_deaths_before_ready() -> None:
    assert not after(died(), died()).is_hopeless(died(), POLICY)
    assert after(died(), died(), died()).is_hopeless(died(), POLICY)


def test_is_hopeless_at_once_when_started_wrongly() -> None:
    assert after(died(2)).is_hopeless(died(2), POLICY)


def test_is_hopeless_never_once_it_has_been_ready() -> None:
    deaths = [died(ready_for_s=0.1), *[died(2)] * 20]
    assert not after(*deaths).is_hopeless(died(2), POLICY)


@pytest.mark.parametrize(
    ("status", "text"),
    [(0, "ended with status 0"), (-9, "was killed by SIGKILL"), (-200, "was killed by signal 200")],
)
def test_death_says_how(status: int, text: str) -> None:
    assert str(died(status)) == text


def test_is_failing_when_it_does_not_come_back_by_itself() -> None:
    again = Restarts(has_been_ready=True)
    assert again.after(died(2), POLICY).is_failing(died(2), POLICY)
    assert not again.after(died(), POLICY).is_failing(died(), POLICY)
    often = again.after(died(), POLICY).after(died(), POLICY).after(died(), POLICY)
    assert often.is_failing(died(), POLICY)
    assert not often.is_failing(died(ready_for_s=0.1), POLICY)


def test_death_without_a_process_says_why() -> None:
    death = Death(status=0, ready_for_s=None, cause="cannot be started: /nowhere: No such file or directory")
    assert str(death) == "cannot be started: /nowhere: No such file or directory"
