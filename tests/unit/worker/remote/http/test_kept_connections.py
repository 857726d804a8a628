"""Which connections of a remote serve further requests."""

from dataclasses import dataclass
from typing import Any

import pytest

from inferd.worker.remote.http.kept_connections import KeptConnections


@dataclass(eq=False)
class _Connection:
    """A connection as it may be after a request."""

    is_idle: bool = True
    is_old: bool = False
    is_closed: bool = False

    def is_available(self) -> bool:
        return self.is_idle

    def has_expired(self) -> bool:
        return self.is_old

    async def aclose(self) -> None:
        self.is_closed = True


def kept(max_idle: int = 2) -> Any:
    """Make them, of connections that stand for the library's."""
    make: Any = _Connection
    return KeptConnections(make, max_idle)


async def test_the_connection_that_was_used_last_serves_the_next_request():
    connections = kept()
    async with connections.taken() as first, connections.taken() as second:
        assert first is not second
    async with connections.taken() as third, connections.taken() as fourth:
        assert (third, fourth) == (first, second)
        async with connections.taken() as fifth:
            assert fifth not in (first, second)
    assert (first.is_closed, fifth.is_closed) == (True, False)  # the third that is idle
    await connections.aclose()
    assert fifth.is_closed


async def test_a_connection_that_an_answer_was_not_read_from_is_closed():
    connections = kept()
    with pytest.raises(ValueError, match="x"):
        async with connections.taken() as first:
            first.is_idle = False
            raise ValueError("x")
    assert first.is_closed
    async with connections.taken() as second:
        assert second is not first


async def test_what_the_remote_has_closed_or_was_idle_for_long_is_not_used():
    connections = kept(3)
    async with (
        connections.taken() as last,
        connections.taken() as middle,
        connections.taken() as first,
    ):
        pass
    first.is_old = last.is_old = True
    async with connections.taken() as taken:
        assert taken is middle
    assert (first.is_closed, middle.is_closed, last.is_closed) == (True, False, True)
