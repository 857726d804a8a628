from hypothesis import given, strategies as st

from inferd.backend.caller import owner_of
from inferd.backend.job import NO_UID
from inferd.engine.prepare.preparer import KnownGrammars
from inferd.limits.engine import (
    KNOWN_GRAMMARS_PER_USER,
    KNOWN_GRAMMARS_PRINCIPALS,
    KNOWN_GRAMMARS_USERS,
)

GRAMMARS = st.lists(st.tuples(st.integers(-5, 5), st.binary(min_size=1, max_size=2)))


@given(GRAMMARS, GRAMMARS)
def test_a_users_grammars_do_not_depend_on_other_users(mine, others):
    alone, among = KnownGrammars(), KnownGrammars()
    for owner, digest in mine:
        alone.add(7, [digest])
        among.add(7, [digest])
        among.add(owner, [digest])
    for owner, digest in others:
        among.add(owner, [digest])
    assert among.of(7) == alone.of(7)


def test_each_users_last_used_grammars_are_kept():
    known = KnownGrammars()
    digests = [bytes([n]) for n in range(KNOWN_GRAMMARS_PER_USER)]
    known.add(1, digests)
    known.add(1, [digests[0], b"new"])
    assert known.of(1) == (*digests[2:], digests[0], b"new")


def test_the_last_active_users_are_kept():
    known = KnownGrammars()
    for owner in range(KNOWN_GRAMMARS_USERS):
        known.add(owner, [b"x"])
    known.add(0, [b"y"])
    known.add(-9, [b"x"])
    assert known.of(0) == (b"x", b"y")
    assert known.of(1) == ()
    assert known.of(-9) == known.of(2) == (b"x",)


def test_owners_without_a_uid_evict_no_user():
    known = KnownGrammars()
    known.add(7, [b"x"])
    for stranger in range(KNOWN_GRAMMARS_USERS):
        known.add(NO_UID - 1 - stranger, [b"y"])
    assert known.of(7) == (b"x",)
    assert known.of(NO_UID - KNOWN_GRAMMARS_USERS) == (b"y",)
    assert len(known._owners) == 2


def test_names_evict_no_user_and_those_of_a_gateway_that_came_last_are_kept():
    known = KnownGrammars()
    known.add(7, [b"x"])
    known.add(owner_of(1, 1), [b"x"])
    for name in range(KNOWN_GRAMMARS_USERS):
        known.add(owner_of(0, name), [b"y"])
    assert known.of(7) == known.of(owner_of(1, 1)) == (b"x",)
    kept = [name for name in range(KNOWN_GRAMMARS_USERS) if known.of(owner_of(0, name))]
    assert kept == [*range(KNOWN_GRAMMARS_USERS)][-KNOWN_GRAMMARS_PRINCIPALS:]


def test_an_unknown_user_has_no_grammars():
    assert KnownGrammars().of(3) == ()
