import pytest
from hypothesis import given, settings, strategies as st

from inferd.engine.supervisor.restart_policy import RestartDelay, RestartPolicy
from inferd.limits.engine import RESTART_BACKOFF_MAX_S

OPEN_S = 30.0


def pauses(deaths, breaker_deaths=5):
    policy = RestartPolicy(breaker_deaths=breaker_deaths, breaker_open_s=OPEN_S)
    return [policy.died(had_served=had_served) for had_served in deaths]


def test_pauses_double_until_the_breaker_opens():
    assert pauses([False] * 7) == [
        *(
            RestartDelay(seconds, breaker_is_open=False)
            for seconds in (0.1, 0.2, 0.4, 0.8)
        ),
        *(RestartDelay(OPEN_S, breaker_is_open=True) for _ in range(3)),
    ]


@settings(max_examples=100)
@given(st.lists(st.booleans(), max_size=40), st.integers(1, 12))
def test_the_breaker_opens_exactly_after_so_many_deaths_in_vain(deaths, breaker_deaths):
    in_vain = 0
    for had_served, pause in zip(deaths, pauses(deaths, breaker_deaths), strict=True):
        in_vain = 0 if had_served else in_vain + 1
        assert pause.breaker_is_open == (in_vain >= breaker_deaths)


@settings(max_examples=100)
@given(st.lists(st.booleans(), max_size=40), st.integers(1, 40))
def test_a_pause_is_bounded_and_none_after_a_served_request(deaths, breaker_deaths):
    for had_served, pause in zip(deaths, pauses(deaths, breaker_deaths), strict=True):
        assert (pause.seconds == 0) == had_served
        if not pause.breaker_is_open:
            assert pause.seconds <= RESTART_BACKOFF_MAX_S


@settings(max_examples=100)
@given(st.lists(st.booleans(), max_size=12), st.lists(st.booleans(), max_size=12))
def test_a_worker_that_served_resets_the_count(before, after):
    assert pauses([*before, True, *after])[len(before) + 1 :] == pauses(after)


def test_the_longest_pause_is_kept_however_many_deaths_it_takes():
    longest = RestartDelay(RESTART_BACKOFF_MAX_S, breaker_is_open=False)
    assert pauses([False] * 2000, breaker_deaths=5000)[-1] == longest


@pytest.mark.parametrize("had_served", [True, False])
def test_one_death_may_be_enough(had_served):
    [pause] = pauses([had_served], breaker_deaths=1)
    assert pause.breaker_is_open == (not had_served)
