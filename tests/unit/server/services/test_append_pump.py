import base64
import errno
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from inferd import surfaces
from inferd.errors import BackendUnavailableError, InvalidRequestError
from inferd.server.fd_passing.quota import FdQuota, LineFds
from inferd.server.identity.peer import Peer
from inferd.server.media.append_queue import AppendQueue
from inferd.server.media.attachments import MEDIA_SLICE_BYTES
from inferd.server.media.growing_audio import GrowingAudioFile
from inferd.server.request_context import RequestContext
from inferd.server.services.append_pump import AppendPump, in_background
from inferd.wire.blocks import AudioAttachment
from inferd.wire.speech import AppendLine
from tests.fakes.fds import memfd, n_open

PEER = Peer(pid=17, uid=1000, gid=100)
AHEAD_BYTES = 2 * MEDIA_SLICE_BYTES


class Studio:
    """Sound that a client appends to a request, and what a backend is told of it."""

    def __init__(self, *, timeout_s: float = 60) -> None:
        self.sound = GrowingAudioFile.create(
            AudioAttachment("a", 16_000, open=True),
            most_bytes=2**30,
            ahead_bytes=AHEAD_BYTES,
        )
        self.appends = AppendQueue(frozenset("a"), timeout_s=timeout_s)
        self.context = RequestContext(
            PEER, surfaces.V2, "r", trio.current_time(), appends=self.appends
        )
        self.told: list[tuple[int, bool]] = []
        self.pump = AppendPump(self.sound, self.context, self._tell)

    def _tell(self, n_bytes: int, *, is_last: bool) -> None:
        self.told.append((n_bytes, is_last))

    def put(self, data: bytes = b"", *, end: bool = False, fds: Sequence[int] = ()):
        given = base64.b64encode(data).decode() if data else None
        line = AppendLine(
            id="r", attachment_id="a", bytes=given, fd=0 if fds else None, end=end
        )
        line_fds = LineFds(FdQuota(100))
        line_fds.add(tuple(fds), is_cut=False)
        assert self.appends.put(line, 1, line_fds) is None


@pytest.fixture
async def studio():
    before, studio = n_open(), Studio()
    yield studio
    studio.sound.close()
    studio.context.release()
    assert n_open() == before


async def settled():
    await trio.testing.wait_all_tasks_blocked()


async def test_appended_audio_and_its_end_are_reported_to_the_backend(
    studio, nursery, autojump_clock
):
    nursery.start_soon(studio.pump.run)
    studio.put(bytes(8))
    await settled()
    assert studio.told == [(8, False)]
    assert studio.context.latency_ms() is None
    await trio.sleep(3)
    studio.put(bytes(4), end=True)
    await settled()
    assert studio.told == [(8, False), (12, False), (12, True)]
    assert studio.context.latency_ms() == 0
    await trio.sleep(2)
    assert studio.context.latency_ms() == 2000


async def test_a_file_may_be_appended_and_an_end_alone(studio):
    studio.put(fds=[memfd(bytes(8))])
    studio.put(end=True)
    await studio.pump.run()
    assert studio.told == [(8, False), (8, True)]
    assert studio.sound.is_whole


async def test_an_empty_file_that_is_not_the_last_fails_the_request(studio):
    studio.put(bytes(4))
    studio.put(fds=[memfd()])
    studio.put(end=True)
    await studio.pump.run()
    assert isinstance(studio.context.failure, InvalidRequestError)
    assert 'append to attachment "a" brings nothing' in str(studio.context.failure)
    assert studio.told == [(4, False)]


async def test_an_empty_file_may_come_with_the_end(studio):
    studio.put(fds=[memfd()], end=True)
    await studio.pump.run()
    assert studio.context.failure is None
    assert studio.told[-1] == (0, True)


async def test_a_lack_of_descriptors_for_a_file_fails_the_request(studio, monkeypatch):
    def none_left(_: int) -> int:
        raise OSError(errno.EMFILE, "too many")

    studio.put(fds=[memfd(bytes(8))])
    monkeypatch.setattr("os.dup", none_left)
    await studio.pump.run()
    assert isinstance(studio.context.failure, BackendUnavailableError)


async def test_the_audio_ends_when_the_client_can_send_no_more(studio):
    studio.put(bytes(8))
    studio.appends.end()
    await studio.pump.run()
    assert studio.told == [(8, False), (8, True)]
    assert studio.context.latency_ms() is not None


async def test_no_more_is_taken_than_the_backend_reads(studio, nursery):
    nursery.start_soon(studio.pump.run)
    for _ in range(5):
        studio.put(bytes(MEDIA_SLICE_BYTES))
    await settled()
    assert studio.sound.n_bytes == AHEAD_BYTES
    assert studio.appends.pending_bytes > 0
    studio.sound.discard(MEDIA_SLICE_BYTES)
    await settled()
    assert studio.sound.n_bytes == AHEAD_BYTES + MEDIA_SLICE_BYTES
    nursery.cancel_scope.cancel()


async def test_the_audio_ends_when_its_end_is_received_not_when_it_is_processed(
    studio, nursery, autojump_clock
):
    nursery.start_soon(studio.pump.run)
    studio.put(bytes(AHEAD_BYTES + 4), end=True)
    await trio.sleep(3)
    assert not studio.sound.is_whole
    studio.sound.discard(MEDIA_SLICE_BYTES)
    await settled()
    assert studio.told[-1] == (AHEAD_BYTES + 4, True)
    assert studio.context.latency_ms() == 3000


async def test_an_invalid_append_fails_the_request(studio):
    with studio.context.scope:
        async with in_background(studio.pump.run):
            studio.put(bytes(7))
            await trio.sleep_forever()
    assert studio.context.scope.cancelled_caught
    assert isinstance(studio.context.failure, InvalidRequestError)
    assert studio.told == []


async def test_a_client_that_appends_nothing_times_out(autojump_clock):
    studio = Studio(timeout_s=5)
    await studio.pump.run()
    assert trio.current_time() == 5
    assert "nothing was appended" in str(studio.context.failure)
    studio.sound.close()


async def test_a_pump_ends_with_the_block_it_runs_in(studio):
    async with in_background(studio.pump.run):
        await settled()
    assert studio.told == []
    assert studio.context.failure is None


async def test_an_error_in_the_block_is_raised_as_it_is(studio):
    with pytest.raises(ZeroDivisionError):
        async with in_background(studio.pump.run):
            raise ZeroDivisionError
