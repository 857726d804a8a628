import base64
import fcntl
import os

import pytest
import trio
from hypothesis import given, strategies as st

from inferd.errors import BackendUnavailableError, InvalidRequestError
from inferd.limits.server import MAX_IMAGE_PIXELS, MEDIA_SLICE_CHARS
from inferd.server.media.attachments import (
    MEDIA_SLICE_BYTES,
    AttachmentFile,
    decoded_size,
    duplicated,
)
from inferd.wire.blocks import AudioAttachment, ImageAttachment
from tests.cases import each_case
from tests.fakes.fds import SEALS, closing, memfd, memfds, n_open
from tests.fakes.media import ODD

SLICE_CHARS = 8


def image(n_bytes: int = 12, **fields) -> ImageAttachment:
    return ImageAttachment(**{"id": "a", "width": 2, "height": n_bytes // 6, **fields})


def audio(data: bytes | str = b"") -> AudioAttachment:
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    return AudioAttachment("a", 16_000, text)


@pytest.fixture
def _small_slices(monkeypatch):
    monkeypatch.setattr(
        "inferd.server.media.attachments.MEDIA_SLICE_CHARS", SLICE_CHARS
    )


# --- in the line ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("_small_slices")
@given(samples=st.lists(st.binary(min_size=4, max_size=4)))
def test_decoded_base64_is_in_the_file(samples):
    data = b"".join(samples)

    async def check():
        medium = await AttachmentFile.from_base64(audio(data))
        assert os.pread(medium.fd, 1000, 0) == data
        assert medium.n_bytes == len(data)
        medium.close()

    trio.run(check)


@pytest.mark.slow
@pytest.mark.usefixtures("_small_slices")
@given(
    text=st.text("ABC+/=", max_size=40) | st.from_regex(r"[A-Za-z0-9+/]{0,30}={0,3}")
)
def test_what_is_no_base64_is_refused_wherever_it_is_cut(text):
    async def check():
        with pytest.raises(InvalidRequestError, match='attachment "a"'):
            (await AttachmentFile.from_base64(audio(text))).close()

    try:
        is_sound = len(base64.b64decode(text, validate=True)) % 4 == 0
    except ValueError:
        is_sound = False
    if not is_sound:
        trio.run(check)


@pytest.mark.usefixtures("_small_slices")
@pytest.mark.parametrize(
    "text", ["AAA=AAAAAAA=", "AAAAAAA=AAA=", "AAAAAA\n=", "AAAAA_==", "é" * 8, "A" * 5]
)
async def test_odd_base64_is_refused_and_leaves_nothing(text):
    before = n_open()
    with pytest.raises(InvalidRequestError):
        await AttachmentFile.from_base64(audio(text))
    assert n_open() == before


@pytest.mark.usefixtures("_small_slices")
async def test_other_tasks_run_between_two_slices(nursery):
    turns = []

    async def other():
        while True:
            turns.append(1)
            await trio.lowlevel.checkpoint()

    nursery.start_soon(other)
    medium = await AttachmentFile.from_base64(audio(bytes(60)))
    nursery.cancel_scope.cancel()
    medium.close()
    assert len(turns) >= 8


@pytest.mark.usefixtures("_small_slices")
async def test_a_cancelled_decoding_leaves_nothing(autojump_clock):
    before = n_open()
    with trio.move_on_after(1) as scope:
        scope.cancel()
        await AttachmentFile.from_base64(audio(bytes(60)))
    assert n_open() == before


async def test_a_decoded_file_is_sealed():
    medium = await AttachmentFile.from_base64(audio(bytes(8)))
    for change in (
        lambda: os.pwrite(medium.fd, b"x", 0),
        lambda: os.ftruncate(medium.fd, 0),
        lambda: os.ftruncate(medium.fd, 100),
    ):
        with pytest.raises(PermissionError):
            change()
    medium.close()
    medium.close()


@pytest.mark.parametrize("fails", ["os.memfd_create", "os.pwrite"])
async def test_a_lack_of_memory_or_descriptors_is_a_temporary_error(fails, monkeypatch):
    def refuse(*_):
        raise OSError(24, "Too many open files")

    before = n_open()
    with monkeypatch.context() as patch:
        patch.setattr(fails, refuse)
        with pytest.raises(BackendUnavailableError, match='"a".*: Too many') as caught:
            await AttachmentFile.from_base64(audio(bytes(8)))
    assert caught.value.retryable
    assert n_open() == before


@given(data=st.binary())
def test_base64_tells_its_length_before_it_is_decoded(data):
    assert decoded_size(base64.b64encode(data).decode()) == len(data)


def test_a_slice_of_base64_has_the_size_that_is_reserved():
    assert decoded_size("A" * MEDIA_SLICE_CHARS) == MEDIA_SLICE_BYTES


# --- sizes ------------------------------------------------------------------------------


@each_case(
    ("width", "height", "n_bytes", "fault"),
    [
        (2, 2, 12, None),
        (1, 1, 3, None),
        (2, 2, 11, '"a" has 11 bytes, 2 x 2 pixels have 12'),
        (2, 2, 13, '"a" has 13 bytes, 2 x 2 pixels have 12'),
        (0, 2, 0, '"a" has 0 x 2 pixels, 1 to'),
        (1, MAX_IMAGE_PIXELS, 0, f"has 0 bytes, 1 x {MAX_IMAGE_PIXELS} pixels have"),
        (1, MAX_IMAGE_PIXELS + 1, 0, f"1 to {MAX_IMAGE_PIXELS} are allowed"),
        (2**32 - 1, 2**32 - 1, 12, "pixels, 1 to"),
    ],
)
async def test_a_picture_has_the_bytes_of_its_pixels(width, height, n_bytes, fault):
    text = base64.b64encode(bytes(n_bytes)).decode()
    for take in (AttachmentFile.from_base64, adopted):
        picture = image(width=width, height=height, bytes=text)
        if fault is None:
            (await take(picture)).close()
        else:
            with pytest.raises(InvalidRequestError, match=fault):
                await take(picture)


async def adopted(attachment) -> AttachmentFile:
    with memfds(base64.b64decode(attachment.bytes or "")) as [fd]:
        return AttachmentFile.from_fd(attachment, fd)


@each_case("n_bytes", [1, 2, 3, 5])
async def test_sound_has_whole_samples(n_bytes):
    for take in (AttachmentFile.from_base64, adopted):
        with pytest.raises(InvalidRequestError, match=f"has {n_bytes} bytes, not"):
            await take(audio(bytes(n_bytes)))


# --- passed -----------------------------------------------------------------------------


def test_a_sealed_memfd_is_used_as_it_is_and_remains_the_client_s():
    before = n_open()
    with memfds(bytes(range(12))) as [fd]:
        medium = AttachmentFile.from_fd(image(), fd)
        assert medium.n_bytes == 12
        assert os.path.sameopenfile(medium.fd, fd)
        medium.close()
        assert os.pread(fd, 2, 0) == b"\0\1"
    assert n_open() == before


def test_a_duplicate_is_closed_on_leaving_even_after_an_error():
    before = n_open()
    with memfds(b"x") as [fd]:
        with pytest.raises(ZeroDivisionError), duplicated(image(), fd) as copy:
            assert os.path.sameopenfile(copy, fd)
            raise ZeroDivisionError
        assert n_open() == before + 1


@each_case(
    ("missing", "name"),
    [
        (fcntl.F_SEAL_WRITE, "F_SEAL_WRITE"),
        (fcntl.F_SEAL_SHRINK, "F_SEAL_SHRINK"),
        (fcntl.F_SEAL_GROW, "F_SEAL_GROW"),
        (SEALS, "F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_GROW"),
    ],
)
def test_a_memfd_without_a_seal_is_refused_with_its_name(missing, name):
    before = n_open()
    future_write = 0x10
    with (
        closing(memfd(bytes(12), seals=SEALS & ~missing | future_write)) as [fd],
        pytest.raises(InvalidRequestError, match=f'"a" is not sealed: {name} missing'),
    ):
        AttachmentFile.from_fd(image(), fd)
    assert n_open() == before


@each_case("what", ODD)
def test_anything_else_is_refused_and_not_kept(what):
    before = n_open()
    with (
        closing(ODD[what].make()) as [fd],
        pytest.raises(InvalidRequestError, match=f'attachment "a".*{ODD[what].fault}'),
    ):
        AttachmentFile.from_fd(image(), fd)
    assert n_open() == before
