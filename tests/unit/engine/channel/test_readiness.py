"""Functions are called for readable descriptors, and what they do is seen at once."""

import math
import select
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
import trio

from inferd.engine.channel import readiness
from inferd.engine.channel.readiness import CallingEpoll, call_when_readable

ENDLESS_S = 3600.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture(params=["in_poll", "in_task"])
def way(request, monkeypatch) -> None:
    if request.param == "in_task":
        monkeypatch.setattr(readiness, "calling_epoll", lambda: None)


async def test_the_installed_trio_is_built_as_expected(autojump_clock):
    epoll = readiness.calling_epoll()
    assert epoll is not None
    assert readiness.calling_epoll() is epoll


async def test_another_trio_has_a_task_wait(monkeypatch):
    monkeypatch.setattr(trio, "_core", object())
    assert readiness.calling_epoll() is None


async def test_a_function_is_called_until_it_returns_false(way, pair, autojump_clock):
    ours, theirs = pair
    heard: list[bytes] = []
    has_heard = trio.Event()

    def hear() -> bool:
        heard.append(ours.recv(1))
        has_heard.set()
        return heard[-1] != b"."

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call_when_readable, ours.fileno(), hear)
        theirs.send(b"a")
        await (
            has_heard.wait()
        )  # a task that it wakes goes on, though nothing else comes
        theirs.send(b"b.c")
    assert heard == [b"a", b"b", b"."]


async def test_what_a_function_raises_its_caller_does(way, pair, autojump_clock):
    ours, theirs = pair
    theirs.send(b"a")

    def fail() -> bool:
        raise LookupError

    with pytest.raises(LookupError):
        await call_when_readable(ours.fileno(), fail)


async def test_afterwards_tasks_may_wait_for_the_descriptor(way, pair, autojump_clock):
    ours, theirs = pair
    calls: list[bytes] = []

    def hear() -> bool:
        calls.append(ours.recv(1))
        return True

    with trio.move_on_after(1) as scope:
        await call_when_readable(ours.fileno(), hear)
    assert scope.cancelled_caught
    theirs.send(b"a")
    await trio.lowlevel.wait_readable(ours)
    assert not calls


async def test_a_task_may_wait_until_it_can_send_meanwhile(way, pair, autojump_clock):
    ours, theirs = pair
    heard: list[bytes] = []

    def hear() -> bool:
        heard.append(ours.recv(1))
        return True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call_when_readable, ours.fileno(), hear)
        await trio.testing.wait_all_tasks_blocked()
        await trio.lowlevel.wait_writable(ours)
        theirs.send(b"a")
        await trio.testing.wait_all_tasks_blocked(0.1)
        nursery.cancel_scope.cancel()
    assert heard == [b"a"]


class Run:
    """What a run of trio tells its epoll object."""

    def __init__(self) -> None:
        self.tasks: list[object] = []
        self.deadline = math.inf


class OnePoll:
    """Epoll object that is waited for once."""

    def __init__(self, epoll: select.epoll) -> None:
        self.register, self.modify = epoll.register, epoll.modify
        self.unregister, self.close = epoll.unregister, epoll.close
        self._polls = [epoll.poll]

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        return self._polls.pop()(timeout, maxevents)


async def test_a_wait_ends_when_a_function_has_given_the_run_something_to_do(pair):
    ours, theirs = pair
    run = Run()

    def wake_a_task() -> bool:
        run.tasks.append(ours.recv(1))
        return True

    def set_a_deadline() -> bool:
        run.deadline = float(ours.recv(1))
        return True

    for call in (wake_a_task, set_a_deadline):
        with select.epoll() as real:
            epoll = CallingEpoll(
                cast("Any", OnePoll(real)), run.tasks, lambda: run.deadline
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(epoll.call_until_over, ours.fileno(), call)
                await trio.testing.wait_all_tasks_blocked()
                theirs.send(b"1")
                assert epoll.poll(ENDLESS_S, 1) == []
                nursery.cancel_scope.cancel()
            run.tasks.clear()


async def test_a_wait_goes_on_until_another_descriptor_has_an_event(pair):
    ours, theirs = pair
    other, others_peer = socket.socketpair()

    def pass_on() -> bool:
        others_peer.send(ours.recv(1))
        return True

    with select.epoll() as real, other, others_peer:
        epoll = CallingEpoll(real, [], lambda: math.inf)
        epoll.register(other, select.EPOLLIN)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(epoll.call_until_over, ours.fileno(), pass_on)
            await trio.testing.wait_all_tasks_blocked()
            theirs.send(b"1")
            assert epoll.poll(ENDLESS_S, 1) == [(other.fileno(), select.EPOLLIN)]
            nursery.cancel_scope.cancel()
        assert epoll.poll(0, 1) == [(other.fileno(), select.EPOLLIN)]
