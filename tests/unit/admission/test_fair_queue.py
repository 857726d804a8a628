from collections.abc import Mapping

from hypothesis import given, settings, strategies as st

from inferd.admission.fair_queue import FairQueue, QueueEntry
from inferd.backend.caller import Caller

WAITING = st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), max_size=12)


def ring_of(waiting: list[tuple[int, int]]) -> FairQueue:
    ring = FairQueue()
    for ticket, (uid, rank) in enumerate(waiting):
        ring.put(Caller(uid), QueueEntry(rank, ticket, ticket))
    return ring


def begin(ring: FairQueue, held: Mapping[Caller, int]) -> None:
    for caller, n in held.items():
        for _ in range(n):
            ring.begin(caller)


def taken(ring: FairQueue) -> list[int]:
    tickets = []
    while ring:
        tickets.append(ring.take().ticket)
    return tickets


@settings(max_examples=30)
@given(WAITING)
def test_the_order_foretells_who_is_taken(waiting):
    order = list(ring_of(waiting).order())
    assert sorted(order) == list(range(len(waiting)))
    assert taken(ring_of(waiting)) == order


HELD = st.dictionaries(st.integers(0, 3).map(Caller), st.integers(0, 4))


@settings(max_examples=30)
@given(WAITING, HELD)
def test_the_order_is_by_rounds_and_in_each_by_turns(waiting, held):
    ring = ring_of(waiting)
    begin(ring, held)
    lines = [*ring.by_caller()]
    uid_of = {
        place.ticket: waiting[place.ticket][0] for line in lines for place in line
    }
    keys = {
        place.ticket: (
            max(0, held.get(Caller(uid_of[place.ticket]), 0) - 1) + number,
            turn,
        )
        for turn, line in enumerate(lines)
        for number, place in enumerate(line)
    }
    assert [*ring.order()] == sorted(keys, key=lambda ticket: keys[ticket])


class Compared(int):
    """A priority that counts how often it is compared."""

    n_times = 0

    def __lt__(self, other: int) -> bool:
        Compared.n_times += 1
        return int(self) < int(other)

    def __eq__(self, other: object) -> bool:
        Compared.n_times += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_the_order_compares_nobody():
    ring = FairQueue()
    for ticket in range(1000):
        ring.put(Caller(ticket % 10), QueueEntry(Compared(0), ticket, ticket))
    Compared.n_times = 0
    assert [*ring.order()] == [*range(1000)]
    assert Compared.n_times == 0


@settings(max_examples=30)
@given(WAITING, st.integers(0, 11))
def test_one_who_is_removed_is_missing_and_nothing_else_of_that_user_moves(waiting, n):
    ring = ring_of(waiting)
    order = list(ring.order())
    if n < len(waiting):
        uid, rank = waiting[n]
        ring.remove(Caller(uid), QueueEntry(rank, n, n))
        order.remove(n)
    for uid in {uid for uid, _ in waiting}:
        mine = [each for each in order if waiting[each][0] == uid]
        assert [each for each in ring.order() if waiting[each][0] == uid] == mine
        assert (uid in ring) == bool(mine)


def test_a_ring_counts_its_users():
    assert [len(ring_of([])), len(ring_of([(1, 0), (1, 0), (2, 0)]))] == [0, 2]


def test_one_who_was_passed_over_goes_behind_all_who_come_before_the_next_turn():
    ring = FairQueue()
    ring.note_served(Caller(1))
    for ticket, uid in enumerate((1, 2, 3)):
        ring.put(Caller(uid), QueueEntry(0, ticket, ticket))
    assert taken(ring) == [1, 2, 0]


def test_one_who_was_passed_over_long_ago_is_as_all_others():
    ring = ring_of([(2, 0)])
    ring.note_served(Caller(1))
    ring.take()
    ring.put(Caller(1), QueueEntry(0, 1, 1))
    ring.put(Caller(3), QueueEntry(0, 2, 2))
    assert taken(ring) == [1, 2]
