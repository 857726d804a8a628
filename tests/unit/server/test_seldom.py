from inferd.server.limits import MAX_REFUSALS_REMEMBERED, REFUSALS_LOGGED_EVERY_S
from inferd.server.seldom import Seldom


def test_the_first_of_a_kind_is_told_and_the_next_ones_are_counted():
    seldom = Seldom()
    assert [seldom.count("a", now=now) for now in (0.0, 1.0, 2.0)] == [1, 0, 0]
    assert seldom.count("a", now=REFUSALS_LOGGED_EVERY_S) == 3
    assert seldom.count("a", now=REFUSALS_LOGGED_EVERY_S) == 0


def test_kinds_are_told_apart():
    seldom = Seldom()
    assert [seldom.count("a", uid, now=0.0) for uid in (1, 2, 1)] == [1, 1, 0]


def test_a_bounded_number_of_kinds_is_remembered_and_the_oldest_is_forgotten():
    seldom = Seldom()
    for uid in range(MAX_REFUSALS_REMEMBERED + 1):
        assert seldom.count(uid, now=0.0) == 1
    assert len(seldom._kinds) == MAX_REFUSALS_REMEMBERED
    assert seldom.count(1, now=1.0) == 0
    assert seldom.count(0, now=1.0) == 1
