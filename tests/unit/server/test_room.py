from collections import Counter

import pytest
from hypothesis import given, strategies as st

from inferd.server.room import Place, Room, n_spare

ANNA, BERT, CARL = 70_001, 70_002, 70_003


def fill(room: Room, uid: int) -> list[Place]:
    """Take places for a user until there is none."""
    return list(iter(lambda: room.take(uid), None))


@pytest.mark.parametrize("n_places", [1, 2, 7, 8, 100])
def test_alone_a_user_has_all_places(n_places):
    room = Room(n_places)
    assert len(fill(room, ANNA)) == room.n_held == n_places


def test_a_place_is_free_again_when_its_holder_left():
    room = Room(1)
    place = room.take(ANNA)
    assert place is not None
    assert room.take(ANNA) is None
    room.leave(place)
    assert room.take(ANNA) is not None


@pytest.mark.parametrize("n_places", [2, 8, 100])
def test_where_one_user_has_all_places_another_gets_in(n_places):
    room = Room(n_places)
    fill(room, ANNA)
    theirs = fill(room, BERT)
    assert len(theirs) == n_spare(n_places)
    assert all(place.is_spare for place in theirs)
    assert room.take(ANNA) is None


def test_spare_places_are_shared_among_those_who_need_them():
    room = Room(80)
    fill(room, ANNA)
    assert room.take(BERT) is not None
    assert len(fill(room, CARL)) == 5
    assert len(fill(room, BERT)) == 4


def test_who_has_a_share_gets_no_spare_place():
    room = Room(10)
    for _ in range(5):
        assert room.take(BERT) is not None
    fill(room, ANNA)
    assert room.take(BERT) is None


def test_where_there_are_no_places_nobody_gets_in():
    assert Room(0).take(ANNA) is None


def test_fewer_places_make_nobody_leave():
    room = Room(4)
    places = fill(room, ANNA)
    room.n_places = 2
    room.leave(places.pop())
    assert (room.n_held, room.take(ANNA)) == (3, None)
    for place in places:
        room.leave(place)
    assert len(fill(room, ANNA)) == 2


@pytest.mark.parametrize(("n_held", "is_short"), [(1, False), (6, False), (7, True)])
def test_places_are_short_when_fewer_than_a_quarter_are_free(n_held, is_short):
    room = Room(8)
    for _ in range(n_held):
        room.take(ANNA)
    assert room.needs_places_of(ANNA) is is_short


def test_who_has_fewer_than_others_may_idle_on():
    room = Room(8)
    for uid in (ANNA, BERT, BERT, CARL, CARL, CARL, CARL):
        room.take(uid)
    needed = [room.needs_places_of(uid) for uid in (ANNA, BERT, CARL)]
    assert needed == [False, False, True]


def test_the_number_of_connections_is_a_figure():
    room = Room(8)
    name, _, read = room.figure()
    room.take(ANNA)
    assert (name, read()) == ("connections", 1)


STEPS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=80)


@given(n_places=st.integers(1, 20), steps=STEPS)
def test_whoever_comes_and_goes_the_bounds_hold(n_places, steps):
    room, inside = Room(n_places), Counter[Place]()
    for uid, comes in steps:
        n_ordinary = sum(n for place, n in inside.items() if not place.is_spare)
        if comes:
            place = room.take(uid)
            if place is not None:
                inside[place] += 1
            assert place is not None or n_ordinary == n_places
        elif mine := [place for place in +inside if place.uid == uid]:
            room.leave(mine[0])
            inside[mine[0]] -= 1
        assert room.n_held == inside.total() <= n_places + n_spare(n_places)
    for place in inside.elements():
        room.leave(place)
    assert (room.n_held, room._held, room._spares) == (0, {}, {})
