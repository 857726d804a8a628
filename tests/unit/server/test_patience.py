import math

from inferd.config import LimitSettings
from inferd.server.patience import LOOKS_PER_IDLE_TIME, Patience

LIMITS = LimitSettings(idle_s=100, line_timeout_s=10)


def deadline(patience: Patience, line: int | None, now: float, *, held: bool = False):
    return patience.deadline(LIMITS, line, is_held_up=held, now=now)


def test_who_says_nothing_has_the_time_to_idle_and_is_then_looked_at_now_and_then():
    patience = Patience(5)
    assert [deadline(patience, None, now) for now in (5, 50)] == [105, 105]
    assert deadline(patience, None, 105) == 105 + 100 / LOOKS_PER_IDLE_TIME


def test_a_line_has_its_time_from_when_it_began_however_it_dribbles():
    patience = Patience(0)
    assert [deadline(patience, 0, now) for now in (20, 21, 29)] == [30, 30, 30]


def test_the_next_line_has_a_time_of_its_own():
    patience = Patience(0)
    assert [deadline(patience, line, now) for line, now in ((0, 20), (1, 25))] == [
        30,
        35,
    ]


def test_after_a_line_without_an_answer_it_idles_anew():
    patience = Patience(0)
    deadline(patience, 0, 20)
    assert deadline(patience, None, 25) == 125


def test_what_is_not_read_on_has_all_the_time_and_then_its_own():
    patience = Patience(0)
    assert deadline(patience, 0, 20) == 30
    assert deadline(patience, 0, 21, held=True) == math.inf
    assert deadline(patience, 0, 500) == 510
