import pytest
import trio
import trio.testing

from inferd.server.access import Access
from inferd.server.guests import HEARING_S, LAST_CALL_S, Guests


class Visitor:
    """A connection that is told what to do."""

    def __init__(self, *, has_asked: bool = False) -> None:
        self.has_asked = has_asked
        self.n_ends = 0
        self.reviewed: list[Access] = []

    def end(self) -> None:
        self.n_ends += 1

    def review(self, access: Access) -> None:
        self.reviewed.append(access)


def test_guests_are_counted_while_they_are_here():
    guests = Guests()
    with guests.counting(Visitor()), guests.counting(Visitor()):
        assert len(guests) == 2
    assert not guests


def test_all_are_told_to_end_and_whoever_comes_later_too():
    guests, early, late = Guests(), Visitor(), Visitor()
    with guests.counting(early):
        guests.end()
        with guests.counting(late):
            assert (early.n_ends, late.n_ends) == (1, 1)


def test_all_who_are_here_are_reviewed():
    guests, visitor, access = Guests(), Visitor(), Access({})
    with guests.counting(visitor):
        guests.review(access)
    guests.review(access)
    assert visitor.reviewed == [access]


@pytest.mark.parametrize(("by", "until"), [(0.5, 0.5), (99, LAST_CALL_S)])
async def test_who_has_not_asked_is_heard_for_a_while(by, until, autojump_clock):
    guests = Guests()
    with guests.counting(Visitor()), guests.counting(Visitor(has_asked=True)):
        await guests.hear(by=by)
    assert trio.current_time() == until


async def test_nobody_is_waited_for_once_all_have_asked(autojump_clock):
    guests = Guests()
    with guests.counting(Visitor(has_asked=True)):
        await guests.hear(by=99)
    assert trio.current_time() == HEARING_S


async def _stay(guests: Guests, seconds: float) -> None:
    with guests.counting(Visitor()):
        await trio.sleep(seconds)


@pytest.mark.parametrize("by", [3, 9])
async def test_those_who_leave_are_waited_for_as_far_as_there_is_time(
    by, nursery, autojump_clock
):
    guests = Guests()
    for seconds in (2, 5):
        nursery.start_soon(_stay, guests, seconds)
    await trio.testing.wait_all_tasks_blocked()
    await guests.leave(by=by)
    assert trio.current_time() == min(by, 5)
    assert bool(guests) is (by < 5)
