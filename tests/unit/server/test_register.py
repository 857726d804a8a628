from contextlib import contextmanager

import pytest
import trio

from inferd.errors import FrameTooLargeError
from inferd.server.activity import Activity
from inferd.server.metrics import Metrics
from inferd.server.peer import Peer
from inferd.server.register import Register


def begin(request_id: str = "r", uid: int = 1000) -> Activity:
    peer = Peer(pid=17, uid=uid, gid=100)
    return Activity(peer, "infer.sock", request_id, trio.current_time())


@contextmanager
def present(register: Register, *activities: Activity):
    for activity in activities:
        register.enter(activity)
    try:
        yield
    finally:
        for activity in activities:
            register.leave(activity)


async def test_requests_are_there_in_the_order_they_came_until_they_go():
    register = Register(Metrics())
    first, second, third = begin(), begin(), begin()
    with present(register, first):
        with present(register, second):
            with present(register, third):
                assert [*register] == [first, second, third]
            assert [*register] == [first, second]
        assert [*register] == [first]
    assert [*register] == []


async def test_two_requests_that_look_the_same_are_two():
    register = Register(Metrics())
    with present(register, begin(), begin()):
        assert len([*register]) == 2


async def test_one_that_goes_is_counted_whatever_ended_it():
    metrics = Metrics()
    register = Register(metrics)
    activity = begin()
    with pytest.raises(ZeroDivisionError), present(register, activity):
        activity.outcome = "internal"
        assert "internal" not in metrics.text()
        raise ZeroDivisionError
    assert [*register] == []
    counted = 'inferd_requests_total{outcome="internal",socket="infer.sock"} 1.0'
    assert counted in metrics.text()


async def test_a_cancel_reaches_all_of_an_id_or_those_of_one_user():
    register = Register(Metrics())
    mine, hers, other = begin("r", 1), begin("r", 2), begin("other", 1)
    with present(register, mine, hers, other):
        assert register.cancel("r", owner=2) == 1
        assert [each.is_cancelled for each in register] == [False, True, False]
        assert register.cancel("r", owner=3) == 0
        assert register.cancel("R", owner=None) == 0
        assert register.cancel("r", owner=None) == 2
        assert [each.is_cancelled for each in register] == [True, True, False]


async def test_the_user_of_number_nought_has_no_more_rights_here():
    register = Register(Metrics())
    hers = begin("r", 2)
    with present(register, hers):
        assert register.cancel("r", owner=0) == 0
    assert not hers.is_cancelled


async def test_one_that_is_gone_is_cancelled_by_nobody():
    register = Register(Metrics())
    activity = begin()
    with present(register, activity):
        pass
    assert register.cancel("r", owner=None) == 0
    assert not activity.is_cancelled


def test_a_line_that_is_no_request_is_counted_and_never_there():
    metrics = Metrics()
    register = Register(metrics)
    register.refuse("infer.sock", FrameTooLargeError("too long"))
    assert [*register] == []
    counted = 'inferd_requests_total{outcome="frame_too_large",socket="infer.sock"} 1.0'
    assert counted in metrics.text()
