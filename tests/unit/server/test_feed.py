import base64
import errno
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from inferd.errors import BackendUnavailableError, InvalidRequestError
from inferd.server.activity import Activity
from inferd.server.appends import Appends
from inferd.server.custody import Custody, Parcel
from inferd.server.feed import Feed, feeding
from inferd.server.media import MEDIA_SLICE_BYTES
from inferd.server.peer import Peer
from inferd.server.sound import Sound
from inferd.wire.blocks import AudioAttachment
from inferd.wire.speech import AppendLine
from tests.fakes.fds import memfd, n_open

PEER = Peer(pid=17, uid=1000, gid=100)
AHEAD_BYTES = 2 * MEDIA_SLICE_BYTES


class Studio:
    """Sound that a client appends to a request, and what a backend is told of it."""

    def __init__(self, *, timeout_s: float = 60) -> None:
        self.sound = Sound.growing(
            AudioAttachment("a", 16_000, open=True),
            most_bytes=2**30,
            ahead_bytes=AHEAD_BYTES,
        )
        self.appends = Appends(frozenset("a"), timeout_s=timeout_s)
        self.activity = Activity(
            PEER, "infer.v2.sock", "r", trio.current_time(), appends=self.appends
        )
        self.told: list[tuple[int, bool]] = []
        self.feed = Feed(self.sound, self.activity, self._tell)

    def _tell(self, n_bytes: int, *, is_last: bool) -> None:
        self.told.append((n_bytes, is_last))

    def put(self, data: bytes = b"", *, end: bool = False, fds: Sequence[int] = ()):
        given = base64.b64encode(data).decode() if data else None
        line = AppendLine(
            id="r", attachment_id="a", bytes=given, fd=0 if fds else None, end=end
        )
        parcel = Parcel(Custody(100))
        parcel.add(tuple(fds), is_cut=False)
        assert self.appends.put(line, 1, parcel) is None


@pytest.fixture
async def studio():
    before, studio = n_open(), Studio()
    yield studio
    studio.sound.close()
    studio.activity.free()
    assert n_open() == before


async def settled():
    await trio.testing.wait_all_tasks_blocked()


async def test_what_is_appended_is_told_and_its_end(studio, nursery, autojump_clock):
    nursery.start_soon(studio.feed.run)
    studio.put(bytes(8))
    await settled()
    assert studio.told == [(8, False)]
    assert studio.activity.latency_ms() is None
    await trio.sleep(3)
    studio.put(bytes(4), end=True)
    await settled()
    assert studio.told == [(8, False), (12, False), (12, True)]
    assert studio.activity.latency_ms() == 0
    await trio.sleep(2)
    assert studio.activity.latency_ms() == 2000


async def test_a_file_may_be_appended_and_an_end_alone(studio):
    studio.put(fds=[memfd(bytes(8))])
    studio.put(end=True)
    await studio.feed.run()
    assert studio.told == [(8, False), (8, True)]
    assert studio.sound.is_whole


async def test_an_empty_file_that_ends_nothing_ends_the_request(studio):
    studio.put(bytes(4))
    studio.put(fds=[memfd()])
    studio.put(end=True)
    await studio.feed.run()
    assert isinstance(studio.activity.failure, InvalidRequestError)
    assert 'append to attachment "a" brings nothing' in str(studio.activity.failure)
    assert studio.told == [(4, False)]


async def test_an_empty_file_may_come_with_the_end(studio):
    studio.put(fds=[memfd()], end=True)
    await studio.feed.run()
    assert studio.activity.failure is None
    assert studio.told[-1] == (0, True)


async def test_where_there_is_no_descriptor_for_a_file_the_request_is_told(
    studio, monkeypatch
):
    def none_left(_: int) -> int:
        raise OSError(errno.EMFILE, "too many")

    studio.put(fds=[memfd(bytes(8))])
    monkeypatch.setattr("os.dup", none_left)
    await studio.feed.run()
    assert isinstance(studio.activity.failure, BackendUnavailableError)


async def test_a_client_that_can_send_no_more_has_ended_it(studio):
    studio.put(bytes(8))
    studio.appends.end()
    await studio.feed.run()
    assert studio.told == [(8, False), (8, True)]
    assert studio.activity.latency_ms() is not None


async def test_no_more_is_taken_than_is_heard(studio, nursery):
    nursery.start_soon(studio.feed.run)
    for _ in range(5):
        studio.put(bytes(MEDIA_SLICE_BYTES))
    await settled()
    assert studio.sound.n_bytes == AHEAD_BYTES
    assert studio.appends.pending_bytes > 0
    studio.sound.forget(MEDIA_SLICE_BYTES)
    await settled()
    assert studio.sound.n_bytes == AHEAD_BYTES + MEDIA_SLICE_BYTES
    nursery.cancel_scope.cancel()


async def test_the_end_is_when_it_was_read_whatever_is_heard_later(
    studio, nursery, autojump_clock
):
    nursery.start_soon(studio.feed.run)
    studio.put(bytes(AHEAD_BYTES + 4), end=True)
    await trio.sleep(3)
    assert not studio.sound.is_whole
    studio.sound.forget(MEDIA_SLICE_BYTES)
    await settled()
    assert studio.told[-1] == (AHEAD_BYTES + 4, True)
    assert studio.activity.latency_ms() == 3000


async def test_what_cannot_be_used_ends_the_request(studio):
    with studio.activity.scope:
        async with feeding(studio.feed):
            studio.put(bytes(7))
            await trio.sleep_forever()
    assert studio.activity.scope.cancelled_caught
    assert isinstance(studio.activity.failure, InvalidRequestError)
    assert studio.told == []


async def test_a_client_that_appends_nothing_is_not_waited_for(autojump_clock):
    studio = Studio(timeout_s=5)
    await studio.feed.run()
    assert trio.current_time() == 5
    assert "nothing was appended" in str(studio.activity.failure)
    studio.sound.close()


async def test_a_feed_ends_with_what_it_runs_beside(studio):
    async with feeding(studio.feed):
        await settled()
    assert studio.told == []
    assert studio.activity.failure is None


async def test_what_goes_wrong_beside_it_is_raised_as_it_is(studio):
    with pytest.raises(ZeroDivisionError):
        async with feeding(studio.feed):
            raise ZeroDivisionError
