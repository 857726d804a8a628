import base64
import fcntl
import os

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from inferd.errors import InvalidRequestError
from inferd.server.media.attachments import MEDIA_SLICE_BYTES
from inferd.server.media.growing_audio import GrowingAudioFile
from inferd.wire.blocks import AudioAttachment
from tests.fakes.fds import closing, memfds, n_open
from tests.fakes.media import ODD

PAGE_BYTES = os.sysconf("SC_PAGESIZE")
AHEAD_BYTES = 4 * MEDIA_SLICE_BYTES


@pytest.fixture
def sound():
    sound = make()
    yield sound
    sound.close()


def make(most_bytes: int = 2**30) -> GrowingAudioFile:
    return GrowingAudioFile.create(
        AudioAttachment("a", 16_000, open=True),
        most_bytes=most_bytes,
        ahead_bytes=AHEAD_BYTES,
    )


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def held(sound: GrowingAudioFile) -> int:
    """Tell how many bytes of memory it takes."""
    return os.fstat(sound.fd).st_blocks * 512


@pytest.mark.slow
@given(parts=st.lists(st.tuples(st.binary(max_size=50), st.booleans())))
def test_appended_text_and_files_are_in_the_file_in_order(parts):
    async def check():
        sound, told = make(), []
        for data, is_file in parts:
            whole = data * 4
            if is_file:
                with memfds(whole) as [fd]:
                    await sound.append_file(fd, lambda: told.append(1))
            else:
                await sound.append_text(text(whole), lambda: told.append(1))
        sound.end()
        expected = b"".join(data * 4 for data, _ in parts)
        assert os.pread(sound.fd, 100_000, 0) == expected
        assert sound.n_bytes == len(expected)
        assert len(told) == sum(bool(data) for data, _ in parts)
        sound.close()

    trio.run(check)


@pytest.mark.parametrize("is_file", [True, False])
async def test_appending_waits_until_earlier_samples_are_read(sound, is_file, nursery):
    n_bytes, told = 10 * MEDIA_SLICE_BYTES, []

    def grown():
        told.append(sound.n_bytes)

    async def append():
        if is_file:
            with memfds(bytes(n_bytes)) as [fd]:
                await sound.append_file(fd, grown)
        else:
            await sound.append_text(text(bytes(n_bytes)), grown)

    nursery.start_soon(append)
    while sound.n_bytes < n_bytes:
        before = sound.n_bytes
        await trio.testing.wait_all_tasks_blocked()
        assert sound.unread_bytes <= AHEAD_BYTES
        assert held(sound) <= AHEAD_BYTES + MEDIA_SLICE_BYTES
        assert sound.n_bytes > before
        sound.discard(sound.n_bytes - 8)
    assert told == [(n + 1) * MEDIA_SLICE_BYTES for n in range(10)]


async def test_appending_before_anything_reads_does_not_wait(sound):
    await sound.append_text(text(bytes(2 * AHEAD_BYTES)))
    assert sound.unread_bytes == 2 * AHEAD_BYTES


async def test_discarded_bytes_take_no_memory_and_the_rest_remains(sound):
    await sound.append_text(text(b"\x01" * 5 * PAGE_BYTES))
    before, left = held(sound), [sound.unread_bytes]
    for n_bytes in (4, 2 * PAGE_BYTES + 4, PAGE_BYTES, 10**9):
        sound.discard(n_bytes)
        if n_bytes == PAGE_BYTES:
            assert before - held(sound) == 2 * PAGE_BYTES
            assert (
                os.pread(sound.fd, PAGE_BYTES, 2 * PAGE_BYTES) == b"\x01" * PAGE_BYTES
            )
        assert sound.unread_bytes <= max(0, sound.n_bytes - n_bytes)
        left.append(sound.unread_bytes)
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    assert sound.n_bytes == os.fstat(sound.fd).st_size


async def test_hours_of_audio_are_discarded_as_they_are_read(sound):
    n_bytes = 2**32  # 18 hours, of which all but the last is a hole
    os.pwrite(sound.fd, bytes(PAGE_BYTES), n_bytes - PAGE_BYTES)
    sound.n_bytes = n_bytes
    sound.discard(n_bytes)
    assert held(sound) == 0


async def test_a_failure_to_free_memory_is_raised(sound):
    await sound.append_text(text(bytes(2 * PAGE_BYTES)))
    fcntl.fcntl(sound.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    with pytest.raises(PermissionError):
        sound.discard(PAGE_BYTES)


async def test_audio_that_has_ended_can_be_discarded_and_not_grown(sound):
    await sound.append_text(text(bytes(4 * PAGE_BYTES)))
    sound.end()
    assert sound.is_whole
    sound.discard(4 * PAGE_BYTES)
    assert held(sound) == 0
    with pytest.raises(PermissionError):
        os.ftruncate(sound.fd, 0)
    with pytest.raises(InvalidRequestError, match='"a" has ended'):
        await sound.append_text(text(bytes(4)))


async def test_a_text_may_end_where_a_slice_does(sound, monkeypatch):
    monkeypatch.setattr("inferd.server.media.growing_audio.MEDIA_SLICE_CHARS", 8)
    await sound.append_text(text(b"1234"))
    await sound.append_text(text(b"12345678"))
    assert os.pread(sound.fd, 100, 0) == b"123412345678"


@pytest.mark.parametrize("data", ["AAA", "A===", "AAAA", "AAAA\n"])
async def test_an_invalid_append_is_refused(sound, data):
    with pytest.raises(InvalidRequestError, match='attachment "a"'):
        await sound.append_text(data)
    assert sound.n_bytes == 0


@pytest.mark.parametrize("what", ODD)
async def test_a_file_that_cannot_be_appended_is_refused_and_closed(sound, what):
    before = n_open()
    with pytest.raises(InvalidRequestError, match='attachment "a"'):
        with closing(ODD[what].make()) as [fd]:
            await sound.append_file(fd)
    assert n_open() == before


async def test_the_first_file_may_have_as_many_bytes_as_may_be_unread(sound):
    with memfds(bytes(AHEAD_BYTES), bytes(AHEAD_BYTES + 4)) as [fits, exceeds]:
        with pytest.raises(InvalidRequestError, match="begins with"):
            await sound.append_file(exceeds)
        await sound.append_file(fits)
    assert sound.n_bytes == AHEAD_BYTES


async def test_appended_audio_has_a_maximum_size():
    sound = make(most_bytes=8)
    await sound.append_text(text(bytes(8)))
    with pytest.raises(InvalidRequestError, match="over 8 bytes"):
        await sound.append_text(text(bytes(4)))
    sound.close()


async def test_close_wakes_a_task_that_waits_to_append(nursery):
    before, sound = n_open(), make()
    whole = text(bytes(2 * AHEAD_BYTES))
    nursery.start_soon(sound.append_text, whole, lambda: None)
    await trio.testing.wait_all_tasks_blocked()
    assert sound.n_bytes == AHEAD_BYTES
    sound.close()
    await trio.testing.wait_all_tasks_blocked()
    assert not nursery.child_tasks
    assert n_open() == before
    sound.discard(4)
    sound.end()
