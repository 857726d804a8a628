import pytest
import trio
import trio.testing

from inferd.server.connection.registry import (
    FIRST_REQUEST_S,
    POLL_S,
    ConnectionRegistry,
)
from inferd.server.identity.access import Access


class RecordingConnection:
    """A connection that records the calls."""

    def __init__(self, *, has_sent_request: bool = False) -> None:
        self.has_sent_request = has_sent_request
        self.n_ends = 0
        self.reviewed: list[Access] = []

    def close_when_idle(self) -> None:
        self.n_ends += 1

    def recheck_access(self, access: Access) -> None:
        self.reviewed.append(access)


def test_connections_are_counted_while_they_are_tracked():
    registry = ConnectionRegistry()
    with registry.track(RecordingConnection()), registry.track(RecordingConnection()):
        assert len(registry) == 2
    assert not registry


def test_present_and_later_connections_are_closed():
    registry, early, late = (
        ConnectionRegistry(),
        RecordingConnection(),
        RecordingConnection(),
    )
    with registry.track(early):
        registry.close_when_idle()
        with registry.track(late):
            assert (early.n_ends, late.n_ends) == (1, 1)


def test_the_access_of_all_connections_is_rechecked():
    registry, connection, access = (
        ConnectionRegistry(),
        RecordingConnection(),
        Access({}),
    )
    with registry.track(connection):
        registry.recheck_access(access)
    registry.recheck_access(access)
    assert connection.reviewed == [access]


@pytest.mark.parametrize(("by", "until"), [(0.5, 0.5), (99, FIRST_REQUEST_S)])
async def test_first_requests_are_waited_for_for_a_while(by, until, autojump_clock):
    registry = ConnectionRegistry()
    with (
        registry.track(RecordingConnection()),
        registry.track(RecordingConnection(has_sent_request=True)),
    ):
        await registry.wait_first_requests(by=by)
    assert trio.current_time() == until


async def test_waiting_ends_once_all_connections_have_sent_a_request(autojump_clock):
    registry = ConnectionRegistry()
    with registry.track(RecordingConnection(has_sent_request=True)):
        await registry.wait_first_requests(by=99)
    assert trio.current_time() == POLL_S


async def _stay(registry: ConnectionRegistry, seconds: float) -> None:
    with registry.track(RecordingConnection()):
        await trio.sleep(seconds)


@pytest.mark.parametrize("by", [3, 9])
async def test_closing_connections_are_waited_for_up_to_the_deadline(
    by, nursery, autojump_clock
):
    registry = ConnectionRegistry()
    for seconds in (2, 5):
        nursery.start_soon(_stay, registry, seconds)
    await trio.testing.wait_all_tasks_blocked()
    await registry.wait_closed(by=by)
    assert trio.current_time() == min(by, 5)
    assert bool(registry) is (by < 5)
