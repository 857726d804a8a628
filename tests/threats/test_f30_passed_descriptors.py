import base64
import fcntl
import mmap
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from inferd.backend.caller import Caller
from inferd.config.settings import LimitSettings
from inferd.errors import BackendUnavailableError, InvalidRequestError, QueueFullError
from inferd.limits.connections import MAX_PASSED_BYTES
from inferd.limits.server import MAX_MEDIA_FILES
from inferd.server.media.growing_audio import GrowingAudioFile
from inferd.server.media.quota import MediaQuota
from inferd.wire.blocks import AudioAttachment, ImageAttachment
from tests.fakes.fds import SEALS, closing, hole, memfd, n_open
from tests.fakes.media import ODD

PICTURE = ImageAttachment("a", 2, 2, fd=0)
MALLORY, ALICE = 1001, 1002
F_SEAL_FUTURE_WRITE = 0x10


def room(**limits: int) -> MediaQuota:
    return MediaQuota(LimitSettings(**limits), MAX_MEDIA_FILES, lambda: 0)


def samples(n_bytes: int) -> AudioAttachment:
    return AudioAttachment("a", 16_000, base64.b64encode(bytes(n_bytes)).decode())


@pytest.mark.parametrize("what", ODD)
async def test_what_is_no_sealed_memfd_is_refused_unread_and_not_kept(
    what, autojump_clock
):
    before = n_open()
    with trio.fail_after(90), room().open(Caller(MALLORY)) as holdings:
        with (
            closing(ODD[what].make()) as fds,
            pytest.raises(InvalidRequestError, match=ODD[what].fault),
        ):
            await holdings.load([PICTURE], fds)
        assert n_open() == before


async def test_nobody_writes_to_what_was_taken():
    with closing(memfd(bytes(12), seals=0)) as [fd], mmap.mmap(fd, 12) as mapping:
        with pytest.raises(OSError, match="busy"):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        seals = SEALS & ~fcntl.F_SEAL_WRITE | F_SEAL_FUTURE_WRITE
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        mapping[0] = 1
        with (
            room().open(Caller(MALLORY)) as holdings,
            pytest.raises(InvalidRequestError, match="F_SEAL_WRITE missing"),
        ):
            await holdings.load([PICTURE], [fd])


async def test_a_file_of_holes_is_as_large_as_it_says():
    sound = AudioAttachment("a", 16_000, fd=0)
    with (
        closing(hole(MAX_PASSED_BYTES + 4)) as fds,
        room().open(Caller(MALLORY)) as holdings,
        pytest.raises(InvalidRequestError),
    ):
        await holdings.load([sound], fds)


@contextmanager
def few_descriptors(n_more: int) -> Iterator[None]:
    """Let this process open so many more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    between = [os.dup(0)]
    while between[-1] < highest:  # numbers that nothing has now
        between.append(os.dup(0))
    last = between.pop()
    os.close(last)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + n_more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in between:
            os.close(fd)


async def test_without_descriptors_a_request_is_refused_and_nothing_is_lost():
    before, shared = n_open(), room()
    wanted = [AudioAttachment(name, 16_000, "AAAAAA==") for name in ("a", "b", "c")]
    with shared.open(Caller(ALICE)) as holdings, few_descriptors(2):
        with pytest.raises(BackendUnavailableError, match='"c".*Too many open files'):
            await holdings.load(wanted, [])
        holdings.close()
    assert n_open() == before
    with shared.open(Caller(ALICE)) as holdings:
        await holdings.load(wanted, [])
        assert len(holdings.media) == 3


async def test_one_user_keeps_no_other_from_descriptors_or_memory():
    before, shared = n_open(), room(max_media_bytes=1000)
    with shared.open(Caller(MALLORY)) as much, shared.open(Caller(MALLORY)) as more:
        await much.load([samples(1000)], [])
        with pytest.raises(QueueFullError):
            await more.load([samples(4)], [])
        with shared.open(Caller(ALICE)) as holdings:
            await holdings.load([samples(400)], [])
            assert holdings.media["a"].n_bytes == 400
    assert n_open() == before


async def test_sound_without_an_end_takes_so_much_memory_and_no_more():
    limits = LimitSettings()
    sound = GrowingAudioFile.create(
        AudioAttachment("a", 16_000, open=True),
        most_bytes=limits.max_appended_bytes,
        ahead_bytes=limits.max_audio_ahead_bytes,
    )
    hour = base64.b64encode(bytes(2**20 // 4 * 3)).decode() * 40
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sound.append_text, hour, lambda: None)
            await trio.testing.wait_all_tasks_blocked()
            assert 0 < sound.unread_bytes <= limits.max_audio_ahead_bytes
            assert os.fstat(sound.fd).st_blocks * 512 <= limits.max_audio_ahead_bytes
            nursery.cancel_scope.cancel()
    sound.close()
