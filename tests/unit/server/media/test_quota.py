import base64
import errno
import os

import pytest
from hypothesis import given, strategies as st

from inferd.backend.caller import Caller
from inferd.config.settings import LimitSettings
from inferd.errors import (
    BackendUnavailableError,
    InferdError,
    InvalidRequestError,
    QueueFullError,
)
from inferd.limits.connections import MIN_AUDIO_AHEAD_BYTES
from inferd.server.media.attachments import MEDIA_SLICE_BYTES, MediaAttachment
from inferd.server.media.growing_audio import GrowingAudioFile
from inferd.server.media.quota import MediaQuota
from inferd.wire.blocks import AudioAttachment, ImageAttachment
from tests.cases import each_case
from tests.fakes.fds import closing, hole, memfd, memfds, n_open
from tests.fakes.media import ODD

LIMITS = LimitSettings(
    max_media_bytes=100,
    max_passed_bytes=20,
    max_appended_bytes=40,
    max_audio_ahead_bytes=MIN_AUDIO_AHEAD_BYTES,
)
DEPTH = 3


def room(n_files: int = 10, limits: LimitSettings = LIMITS) -> MediaQuota:
    return MediaQuota(limits, n_files, lambda: DEPTH)


def audio(name: str = "a", n_bytes: int | None = None, **fields) -> AudioAttachment:
    text = None if n_bytes is None else base64.b64encode(bytes(n_bytes)).decode()
    return AudioAttachment(name, 16_000, text, **fields)


async def test_every_attachment_is_loaded_from_base64_or_descriptor():
    before, shared = n_open(), room()
    image = ImageAttachment("i", 2, 2, fd=1)
    wanted: list[MediaAttachment] = [
        audio("a", 8),
        image,
        audio("b", fd=0),
        audio("c", open=True),
    ]
    with shared.open(Caller(7)) as request_media:
        with memfds(bytes(4), bytes(12), b"") as fds:
            await request_media.load(wanted, fds)
        held = {name: each.n_bytes for name, each in request_media.media.items()}
        assert held == {"a": 8, "i": 12, "b": 4, "c": 0}
        assert n_open() == before + 4
        assert isinstance(request_media.media["c"], GrowingAudioFile)
    assert n_open() == before
    assert shared.held_bytes == 0
    assert not [*shared._requests]


async def test_open_sound_begins_with_what_came_in_its_line():
    before = n_open()
    with room().open(Caller(7)) as request_media:
        wanted = [audio("a", 8, open=True), audio("b", fd=0, open=True)]
        with memfds(b"wave") as fds:
            await request_media.load(wanted, fds)
        assert [each.n_bytes for each in request_media.media.values()] == [8, 4]
        assert os.pread(request_media.media["b"].fd, 10, 0) == b"wave"
    assert n_open() == before


@each_case(
    ("wanted", "fault"),
    [
        ([audio("a", fd=0), audio("b", fd=1)], "have 24 bytes, at most 20"),
        ([audio("a", fd=0), audio("b", fd=0)], "have 24 bytes, at most 20"),
        ([audio("a", 4), audio("b", 3)], '"b" has 3 bytes'),
        ([audio("a", 44, open=True)], '"a" has over 40 bytes'),
    ],
)
async def test_an_invalid_attachment_is_named_and_all_files_are_closed(wanted, fault):
    before, shared = n_open(), room()
    with (
        memfds(bytes(12), bytes(12)) as fds,
        pytest.raises(InvalidRequestError, match=fault),
        shared.open(Caller(7)) as request_media,
    ):
        await request_media.load(wanted, fds)
    assert n_open() == before
    assert shared.held_bytes == 0


@each_case("what", ODD)
async def test_a_descriptor_of_another_kind_is_refused_and_all_files_are_closed(what):
    before = n_open()
    with (
        closing(memfd(bytes(4)), ODD[what].make()) as fds,
        pytest.raises(InvalidRequestError),
        room().open(Caller(7)) as request_media,
    ):
        await request_media.load([audio("a", fd=0), audio("b", fd=1)], fds)
    assert n_open() == before


async def test_a_sparse_file_does_not_take_memory_of_the_daemon():
    limits = LimitSettings(max_audio_ahead_bytes=MIN_AUDIO_AHEAD_BYTES)
    before = n_open()
    with (
        closing(hole(MIN_AUDIO_AHEAD_BYTES + 4)) as fds,
        pytest.raises(InvalidRequestError, match=r"begins with \d+ bytes, at most"),
        room(limits=limits).open(Caller(7)) as request_media,
    ):
        await request_media.load([audio(fd=0, open=True)], fds)
    assert n_open() == before


async def test_sound_for_which_there_is_no_file_leaves_none_open(monkeypatch):
    before = n_open()

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many")

    with memfds(b"") as fds, room().open(Caller(7)) as request_media:
        monkeypatch.setattr("os.memfd_create", none_left)
        with pytest.raises(BackendUnavailableError):
            await request_media.load([audio(fd=0, open=True)], fds)
    assert n_open() == before


async def test_a_user_who_holds_much_is_refused_more_and_another_is_not():
    shared = room()
    with (
        shared.open(Caller(7)) as first,
        shared.open(Caller(7)) as second,
        shared.open(Caller(8)) as other,
    ):
        await first.load([audio(n_bytes=100)], [])
        with pytest.raises(QueueFullError) as caught:
            await second.load([audio(n_bytes=4)], [])
        assert caught.value.depth == DEPTH
        await other.load([audio(n_bytes=48)], [])
        assert shared.held_bytes == 148
        first.close()
        await second.load([audio(n_bytes=40)], [])


async def test_a_user_with_one_request_left_does_not_count_as_new():
    shared = room()
    with (
        shared.open(Caller(7)) as mine,
        shared.open(Caller(7)) as gone,
        shared.open(Caller(8)) as theirs,
    ):
        await mine.load([audio(n_bytes=4)], [])
        await gone.load([audio(n_bytes=4)], [])
        await theirs.load([audio(n_bytes=80)], [])
        gone.close()
        with shared.open(Caller(7)) as more, pytest.raises(QueueFullError):
            await more.load([audio(n_bytes=20)], [])


async def test_a_user_without_media_takes_no_share():
    shared = room()
    with (
        shared.open(Caller(7)) as without,
        shared.open(Caller(8)) as first,
        shared.open(Caller(8)) as second,
    ):
        await without.load([], [])
        await first.load([audio(n_bytes=48)], [])
        await second.load([audio(n_bytes=48)], [])
        assert shared.held_bytes == 96


async def test_passed_files_count_as_descriptors_and_not_as_bytes():
    shared = room(n_files=2)
    with shared.open(Caller(7)) as first, shared.open(Caller(7)) as second:
        with memfds(bytes(8), b"") as fds:
            await first.load([audio("a", fd=0)], fds)
        assert shared.held_bytes == 0
        with memfds(b"", b"") as fds, pytest.raises(QueueFullError):
            await second.load([audio("a", fd=0), audio("b", fd=1)], fds)


async def test_without_descriptors_for_media_every_request_is_refused():
    before = n_open()
    with (
        memfds(b"") as fds,
        room(n_files=0).open(Caller(7)) as request_media,
        pytest.raises(QueueFullError),
    ):
        await request_media.load([audio(fd=0)], fds)
    assert n_open() == before


async def test_open_audio_counts_with_the_bytes_that_may_be_appended():
    shared = room(limits=LimitSettings())
    with shared.open(Caller(7)) as request_media:
        await request_media.load([audio(open=True)], [])
        expected = LimitSettings().max_audio_ahead_bytes + MEDIA_SLICE_BYTES
        assert shared.held_bytes == expected


async def test_changed_limits_apply_to_later_requests():
    shared = room()
    with shared.open(Caller(7)) as first, shared.open(Caller(7)) as second:
        await first.load([audio(n_bytes=60)], [])
        shared.reconfigure(LimitSettings(max_media_bytes=50))
        with pytest.raises(QueueFullError):
            await second.load([audio(n_bytes=4)], [])
        first.close()
        await second.load([audio(n_bytes=4)], [])


async def test_a_changed_number_of_files_applies_to_later_requests():
    shared = room(n_files=2)
    with (
        shared.open(Caller(7)) as first,
        shared.open(Caller(7)) as second,
        memfds(b"") as fds,
    ):
        await first.load([audio(fd=0)], fds)
        shared.limit_files(1)
        with pytest.raises(QueueFullError):
            await second.load([audio(fd=0)], fds)
        shared.limit_files(2)
        await second.load([audio(fd=0)], fds)


async def test_a_changed_limit_of_passed_bytes_applies_to_later_requests():
    shared = room()
    shared.reconfigure(LimitSettings(max_passed_bytes=8))
    with (
        memfds(bytes(12)) as fds,
        shared.open(Caller(7)) as request_media,
        pytest.raises(InvalidRequestError, match="at most 8"),
    ):
        await request_media.load([audio(fd=0)], fds)


@given(
    wants=st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 200), st.integers(1, 12)),
        max_size=30,
    )
)
def test_no_quota_is_used_once_all_requests_ended(wants):
    shared, held = room(), []
    for n, (uid, n_bytes, n_files) in enumerate(wants):
        try:
            held.append(shared.spend(Caller(uid), n_bytes, n_files))
        except InferdError:
            assert held or n_files > 10, "alone, and refused"
        if n % 3 == 2 and held:
            shared.release(held.pop(0))
    for each in held:
        shared.release(each)
    assert (shared.held_bytes, shared._files.spent, [*shared._requests]) == (0, 0, [])
