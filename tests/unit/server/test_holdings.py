import base64
import errno
import os

import pytest
from hypothesis import given, strategies as st

from inferd.config import LimitSettings
from inferd.errors import (
    BackendUnavailableError,
    InferdError,
    InvalidRequestError,
    QueueFullError,
)
from inferd.limits import MIN_AUDIO_AHEAD_BYTES
from inferd.server.holdings import MediaRoom
from inferd.server.media import MEDIA_SLICE_BYTES, Attached
from inferd.server.sound import Sound
from inferd.wire.blocks import AudioAttachment, ImageAttachment
from tests.fakes.fds import closing, hole, memfd, memfds, n_open
from tests.fakes.media import ODD

LIMITS = LimitSettings(
    max_media_bytes=100,
    max_passed_bytes=20,
    max_appended_bytes=40,
    max_audio_ahead_bytes=MIN_AUDIO_AHEAD_BYTES,
)
DEPTH = 3


def room(n_files: int = 10, limits: LimitSettings = LIMITS) -> MediaRoom:
    return MediaRoom(limits, n_files, lambda: DEPTH)


def audio(name: str = "a", n_bytes: int | None = None, **fields) -> AudioAttachment:
    text = None if n_bytes is None else base64.b64encode(bytes(n_bytes)).decode()
    return AudioAttachment(name, 16_000, text, **fields)


async def test_each_attachment_is_held_whatever_way_it_came():
    before, shared = n_open(), room()
    image = ImageAttachment("i", 2, 2, fd=1)
    wanted: list[Attached] = [
        audio("a", 8),
        image,
        audio("b", fd=0),
        audio("c", open=True),
    ]
    with shared.open(7) as holdings:
        with memfds(bytes(4), bytes(12), b"") as fds:
            await holdings.take(wanted, fds)
        held = {name: each.n_bytes for name, each in holdings.media.items()}
        assert held == {"a": 8, "i": 12, "b": 4, "c": 0}
        assert n_open() == before + 4
        assert isinstance(holdings.media["c"], Sound)
    assert n_open() == before
    assert shared.held_bytes == 0
    assert not shared._users


async def test_open_sound_begins_with_what_came_in_its_line():
    before = n_open()
    with room().open(7) as holdings:
        wanted = [audio("a", 8, open=True), audio("b", fd=0, open=True)]
        with memfds(b"wave") as fds:
            await holdings.take(wanted, fds)
        assert [each.n_bytes for each in holdings.media.values()] == [8, 4]
        assert os.pread(holdings.media["b"].fd, 10, 0) == b"wave"
    assert n_open() == before


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        ([audio("a", fd=0), audio("b", fd=1)], "have 24 bytes, at most 20"),
        ([audio("a", fd=0), audio("b", fd=0)], "have 24 bytes, at most 20"),
        ([audio("a", 4), audio("b", 3)], '"b" has 3 bytes'),
        ([audio("a", 44, open=True)], '"a" has over 40 bytes'),
    ],
)
async def test_what_cannot_be_used_is_refused_by_name_and_all_is_let_go(wanted, fault):
    before, shared = n_open(), room()
    with (
        memfds(bytes(12), bytes(12)) as fds,
        pytest.raises(InvalidRequestError, match=fault),
        shared.open(7) as holdings,
    ):
        await holdings.take(wanted, fds)
    assert n_open() == before
    assert shared.held_bytes == 0


@pytest.mark.parametrize("what", ODD)
async def test_an_odd_descriptor_is_refused_and_all_is_let_go(what):
    before = n_open()
    with (
        closing(memfd(bytes(4)), ODD[what].make()) as fds,
        pytest.raises(InvalidRequestError),
        room().open(7) as holdings,
    ):
        await holdings.take([audio("a", fd=0), audio("b", fd=1)], fds)
    assert n_open() == before


async def test_a_hole_in_a_file_does_not_become_memory_of_ours():
    limits = LimitSettings(max_audio_ahead_bytes=MIN_AUDIO_AHEAD_BYTES)
    before = n_open()
    with (
        closing(hole(MIN_AUDIO_AHEAD_BYTES + 4)) as fds,
        pytest.raises(InvalidRequestError, match=r"begins with \d+ bytes, at most"),
        room(limits=limits).open(7) as holdings,
    ):
        await holdings.take([audio(fd=0, open=True)], fds)
    assert n_open() == before


async def test_sound_for_which_there_is_no_file_leaves_none_open(monkeypatch):
    before = n_open()

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many")

    with memfds(b"") as fds, room().open(7) as holdings:
        monkeypatch.setattr("os.memfd_create", none_left)
        with pytest.raises(BackendUnavailableError):
            await holdings.take([audio(fd=0, open=True)], fds)
    assert n_open() == before


async def test_a_user_who_holds_much_is_refused_more_and_another_is_not():
    shared = room()
    with shared.open(7) as first, shared.open(7) as second, shared.open(8) as other:
        await first.take([audio(n_bytes=100)], [])
        with pytest.raises(QueueFullError) as caught:
            await second.take([audio(n_bytes=4)], [])
        assert caught.value.depth == DEPTH
        await other.take([audio(n_bytes=48)], [])
        assert shared.held_bytes == 148
        first.close()
        await second.take([audio(n_bytes=40)], [])


async def test_who_let_one_of_two_go_does_not_come_for_the_first_time():
    shared = room()
    with shared.open(7) as mine, shared.open(7) as gone, shared.open(8) as theirs:
        await mine.take([audio(n_bytes=4)], [])
        await gone.take([audio(n_bytes=4)], [])
        await theirs.take([audio(n_bytes=80)], [])
        gone.close()
        with shared.open(7) as more, pytest.raises(QueueFullError):
            await more.take([audio(n_bytes=20)], [])


async def test_who_has_no_media_shares_in_nothing():
    shared = room()
    with shared.open(7) as without, shared.open(8) as first, shared.open(8) as second:
        await without.take([], [])
        await first.take([audio(n_bytes=48)], [])
        await second.take([audio(n_bytes=48)], [])
        assert shared.held_bytes == 96


async def test_what_a_client_passes_takes_descriptors_and_no_bytes():
    shared = room(n_files=2)
    with shared.open(7) as first, shared.open(7) as second:
        with memfds(bytes(8), b"") as fds:
            await first.take([audio("a", fd=0)], fds)
        assert shared.held_bytes == 0
        with memfds(b"", b"") as fds, pytest.raises(QueueFullError):
            await second.take([audio("a", fd=0), audio("b", fd=1)], fds)


async def test_where_there_are_no_descriptors_for_media_nobody_has_any():
    before = n_open()
    with (
        memfds(b"") as fds,
        room(n_files=0).open(7) as holdings,
        pytest.raises(QueueFullError),
    ):
        await holdings.take([audio(fd=0)], fds)
    assert n_open() == before


async def test_open_sound_counts_for_what_may_come():
    shared = room(limits=LimitSettings())
    with shared.open(7) as holdings:
        await holdings.take([audio(open=True)], [])
        expected = LimitSettings().max_audio_ahead_bytes + MEDIA_SLICE_BYTES
        assert shared.held_bytes == expected


async def test_bounds_change_for_those_who_come_later():
    shared = room()
    with shared.open(7) as first, shared.open(7) as second:
        await first.take([audio(n_bytes=60)], [])
        shared.resize(LimitSettings(max_media_bytes=50))
        with pytest.raises(QueueFullError):
            await second.take([audio(n_bytes=4)], [])
        first.close()
        await second.take([audio(n_bytes=4)], [])


async def test_how_many_files_there_may_be_changes_for_those_who_come_later():
    shared = room(n_files=2)
    with shared.open(7) as first, shared.open(7) as second, memfds(b"") as fds:
        await first.take([audio(fd=0)], fds)
        shared.bound_files(1)
        with pytest.raises(QueueFullError):
            await second.take([audio(fd=0)], fds)
        shared.bound_files(2)
        await second.take([audio(fd=0)], fds)


async def test_how_much_may_be_passed_changes_for_those_who_come_later():
    shared = room()
    shared.resize(LimitSettings(max_passed_bytes=8))
    with (
        memfds(bytes(12)) as fds,
        shared.open(7) as holdings,
        pytest.raises(InvalidRequestError, match="at most 8"),
    ):
        await holdings.take([audio(fd=0)], fds)


@given(
    wants=st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 200), st.integers(1, 12)),
        max_size=30,
    )
)
def test_after_everybody_left_nothing_is_held(wants):
    shared, held = room(), []
    for n, (uid, n_bytes, n_files) in enumerate(wants):
        try:
            held.append(shared.spend(uid, n_bytes, n_files))
        except InferdError:
            assert held or n_files > 10, "alone, and refused"
        if n % 3 == 2 and held:
            shared.give_back(held.pop(0))
    for each in held:
        shared.give_back(each)
    assert (shared.held_bytes, shared._files.spent, +shared._users) == (0, 0, {})
