from inferd.config.kinds.remote_limits import FAILURE_WINDOW_S, OPEN_S
from inferd.worker.remote.breaker import Breaker


def opened() -> Breaker:
    breaker = Breaker()
    assert [breaker.failed(ticket, 10.0) for ticket in range(3)] == [False, False, True]
    return breaker


def test_three_failures_within_the_window_open_it_for_its_time():
    breaker = opened()
    assert not breaker.admits(4, 10.0 + OPEN_S - 1)
    assert breaker.open_for_s(11.0) == OPEN_S - 1
    assert breaker.admits(4, 10.0 + OPEN_S)


def test_failures_that_are_older_than_the_window_do_not_count():
    breaker = Breaker()
    late = FAILURE_WINDOW_S + 2
    assert [breaker.failed(0, at) for at in (0.0, 1.0, late, late)] == 4 * [False]
    assert breaker.failed(0, late)


def test_an_answer_forgets_failures():
    breaker = Breaker()
    breaker.failed(1, 0.0)
    breaker.failed(2, 0.0)
    breaker.succeeded()
    assert not breaker.failed(3, 0.0)


def test_half_open_it_lets_one_request_through_whose_outcome_decides():
    now = 10.0 + OPEN_S
    breaker = opened()
    assert breaker.admits(7, now)
    assert not breaker.admits(8, now)
    assert not breaker.failed(6, now)  # asked before it opened: that decides nothing
    assert breaker.failed(7, now)
    assert not breaker.admits(9, now + OPEN_S - 1)
    assert breaker.admits(9, now + OPEN_S)
    breaker.succeeded()
    assert breaker.is_closed
    assert breaker.admits(10, now + OPEN_S)


def test_a_trial_that_is_given_up_is_followed_by_another_one():
    now = 10.0 + OPEN_S
    breaker = opened()
    assert breaker.admits(7, now)
    breaker.abandoned(6)
    assert not breaker.admits(8, now)
    breaker.abandoned(7)
    assert breaker.admits(8, now)
