import math

from inferd.config.settings import LimitSettings
from inferd.server.connection.read_timeout import IDLE_CHECKS_PER_TIMEOUT, ReadTimeout

LIMITS = LimitSettings(idle_s=100, line_timeout_s=10)


def deadline(
    timeout: ReadTimeout, line: int | None, now: float, *, is_paused: bool = False
):
    return timeout.deadline(LIMITS, line, is_paused=is_paused, now=now)


def test_an_idle_connection_is_checked_after_its_timeout_and_then_regularly():
    timeout = ReadTimeout(5)
    assert [deadline(timeout, None, now) for now in (5, 50)] == [105, 105]
    assert deadline(timeout, None, 105) == 105 + 100 / IDLE_CHECKS_PER_TIMEOUT


def test_the_timeout_of_a_line_counts_from_its_first_byte():
    timeout = ReadTimeout(0)
    assert [deadline(timeout, 0, now) for now in (20, 21, 29)] == [30, 30, 30]


def test_the_next_line_has_its_own_timeout():
    timeout = ReadTimeout(0)
    assert [deadline(timeout, line, now) for line, now in ((0, 20), (1, 25))] == [
        30,
        35,
    ]


def test_the_idle_timeout_begins_again_after_a_line_without_an_answer():
    timeout = ReadTimeout(0)
    deadline(timeout, 0, 20)
    assert deadline(timeout, None, 25) == 125


def test_a_paused_line_has_no_timeout_until_it_is_read_on():
    timeout = ReadTimeout(0)
    assert deadline(timeout, 0, 20) == 30
    assert deadline(timeout, 0, 21, is_paused=True) == math.inf
    assert deadline(timeout, 0, 500) == 510
