from hypothesis import given, strategies as st

from inferd.engine.remembered import Remembered
from inferd.job import NOBODY
from inferd.limits import GRAMMARS_REMEMBERED, OWNERS_REMEMBERED

GRAMMARS = st.lists(st.tuples(st.integers(-5, 5), st.binary(min_size=1, max_size=2)))


@given(GRAMMARS, GRAMMARS)
def test_what_one_user_had_tried_is_nothing_to_another(mine, others):
    alone, among = Remembered(), Remembered()
    for owner, digest in mine:
        alone.add(7, [digest])
        among.add(7, [digest])
        among.add(owner, [digest])
    for owner, digest in others:
        among.add(owner, [digest])
    assert among.of(7) == alone.of(7)


def test_of_each_user_those_are_kept_that_were_used_last():
    known = Remembered()
    digests = [bytes([n]) for n in range(GRAMMARS_REMEMBERED)]
    known.add(1, digests)
    known.add(1, [digests[0], b"new"])
    assert known.of(1) == (*digests[2:], digests[0], b"new")


def test_of_users_those_are_kept_who_asked_last():
    known = Remembered()
    for owner in range(OWNERS_REMEMBERED):
        known.add(owner, [b"x"])
    known.add(0, [b"y"])
    known.add(-9, [b"x"])
    assert known.of(0) == (b"x", b"y")
    assert known.of(1) == ()
    assert known.of(-9) == known.of(2) == (b"x",)


def test_those_who_are_counted_together_displace_nobody_else():
    known = Remembered()
    known.add(7, [b"x"])
    for stranger in range(OWNERS_REMEMBERED):
        known.add(NOBODY - 1 - stranger, [b"y"])
    assert known.of(7) == (b"x",)
    assert known.of(NOBODY - OWNERS_REMEMBERED) == (b"y",)
    assert len(known._owners) == 2


def test_of_a_user_who_never_asked_nothing_is_known():
    assert Remembered().of(3) == ()
