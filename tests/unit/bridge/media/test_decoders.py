import errno
import io
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace
from PIL import Image

from inferd.bridge.access_log import BridgeLog
from inferd.bridge.identity.share import SharedLimit
from inferd.bridge.media import fork_server
from inferd.bridge.media.decoders import MediaDecoders
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.config.bridge import BridgeSettings
from inferd.limits.media_decoder import MAX_FAULT_CHARS
from tests.cases import each_case
from tests.fakes import hostile_media_decoder
from tests.fakes.fds import content_of
from tests.fakes.recordings import CODERS, write_sound

pytestmark = pytest.mark.slow

DEFAULTS = BridgeSettings()
RED, BLUE = (255, 0, 0), (0, 0, 255)
LARGEST = 2**25
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def decoders() -> Iterator[MediaDecoders]:
    """Decoders with the default bounds, which the tests of this module share."""
    made = MediaDecoders(DEFAULTS, BridgeLog(list[bytes]().append))
    yield made
    made.close()


@pytest.fixture
def taken_over(monkeypatch) -> Iterator[MediaDecoders]:
    """Decoders that do what the file says."""
    monkeypatch.setattr(fork_server, "PROGRAM", hostile_media_decoder.PROGRAM)
    made = MediaDecoders(
        replace(DEFAULTS, media_decoders=2, media_decode_s=DAY_S),
        BridgeLog(list[bytes]().append),
    )
    yield made
    made.close()


def image(mode: str = "RGB", size: tuple[int, int] = (16, 8)) -> Image.Image:
    """A picture whose left half is red, and its right half blue."""
    made = Image.new("RGB", size, RED)
    made.paste(BLUE, (size[0] // 2, 0, *size))
    return made.convert(mode)


def saved(made: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    made.save(file, kind, **options)
    return file.getvalue()


async def picture(decoders: MediaDecoders, data: bytes, who: str = "a") -> Image.Image:
    with await decoders.decode_picture(data, place="image", principal=who) as decoded:
        size = decoded.width, decoded.height
        return Image.frombytes("RGB", size, content_of(decoded.fd))


def open_fds() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def fault(decoders: MediaDecoders, data: bytes, kind: str = "picture") -> str:
    decode = decoders.decode_sound if kind == "sound" else decoders.decode_picture
    with pytest.raises(BridgeError) as caught:
        await decode(data, place="messages[0].content[1]", principal="a")
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert caught.value.param == "messages[0].content[1]"
    return str(caught.value)


def is_near(pixel: object, colour: tuple[int, int, int]) -> bool:
    assert isinstance(pixel, tuple)
    return all(abs(one - other) < 40 for one, other in zip(pixel, colour, strict=True))


@each_case(
    "kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000"]
)
async def test_pictures_of_each_form_are_decoded_where_no_file_can_be_opened(
    decoders, kind
):
    read = await picture(decoders, saved(image(), kind))
    assert read.size == (16, 8)
    assert is_near(read.getpixel((2, 4)), RED)
    assert is_near(read.getpixel((13, 4)), BLUE)


@each_case("mode", ["CMYK", "L", "P", "1", "RGBA", "YCbCr"])
async def test_pictures_of_each_mode_are_decoded(decoders, mode):
    kind = "JPEG" if mode in ("CMYK", "YCbCr") else "PNG"
    assert (await picture(decoders, saved(image(mode), kind))).size == (16, 8)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
async def test_of_an_animation_the_first_image_is_taken(decoders, kind):
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, BLUE, RED)]
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:])
    assert is_near((await picture(decoders, data)).getpixel((1, 1)), RED)


async def test_a_camera_held_upright_is_turned(decoders):
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn to the right
    read = await picture(decoders, saved(image(), "JPEG", exif=exif))
    assert read.size == (8, 16)
    assert is_near(read.getpixel((4, 2)), RED)


@pytest.mark.parametrize("name", CODERS)
async def test_sounds_of_each_form_are_decoded_where_no_file_can_be_opened(
    decoders, name, tmp_path
):
    data = write_sound(tmp_path / name, 0.5).read_bytes()
    with await decoders.decode_sound(data, place="file", principal="a") as sound:
        assert sound.n_samples == pytest.approx(8000, rel=0.2)
        assert (sound.width, sound.height) == (0, 0)
        assert any(content_of(sound.fd))


async def test_what_is_decoded_is_sealed_held_and_given_back(decoders):
    n_fds = open_fds()
    before = decoders.n_held_bytes
    decoded = await decoders.decode_picture(saved(image()), place="p", principal="a")
    assert decoders.n_held_bytes - before == decoded.n_bytes == 16 * 8 * 3
    with pytest.raises(PermissionError):
        os.write(decoded.fd, b"x")
    decoded.close()
    decoded.close()
    assert decoders.n_held_bytes == before
    assert open_fds() == n_fds


# --- files that are refused ------------------------------------------------------------


@each_case(
    "data", [b"", b"text", b"\x89PNG\r\n\x1a\n", b"<svg xmlns='x'/>", bytes(1000)]
)
async def test_a_file_that_is_none_is_refused_with_its_place(decoders, data):
    assert "messages[0].content[1]: cannot be decoded" in await fault(decoders, data)
    assert "as audio" in await fault(decoders, data, "sound")


async def test_a_picture_that_claims_to_be_huge_is_refused_before_it_is_decoded(
    decoders,
):
    bomb = b"P6 8192 4097 255\n"
    assert "8192 x 4097 pixels, at most 33554432" in await fault(decoders, bomb)


@pytest.mark.long
async def test_the_largest_picture_is_decoded_with_transparency_and_turned(decoders):
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(
        Image.new("RGBA", (LARGEST // 4096, 4096)), exif=exif, compress_level=1
    )
    with await decoders.decode_picture(data, place="p", principal="a") as decoded:
        assert (decoded.width, decoded.height) == (4096, LARGEST // 4096)


async def test_a_recording_over_the_bound_of_seconds_is_refused(tmp_path):
    short = MediaDecoders(
        replace(DEFAULTS, max_sound_s=1), BridgeLog(list[bytes]().append)
    )
    long = write_sound(tmp_path / "a.flac", 1.5).read_bytes()
    try:
        assert "longer than 1 s" in await fault(short, long, "sound")
    finally:
        short.close()


@pytest.mark.parametrize("name", ["a.wav", "a.m4a"])
async def test_a_recording_that_breaks_off_is_refused(decoders, name, tmp_path):
    data = write_sound(tmp_path / name, 3).read_bytes()
    await fault(decoders, data[: len(data) // 2], "sound")


async def test_what_is_held_is_bounded_for_each_principal():
    small = replace(DEFAULTS, max_decoded_bytes=1024)
    decoders = MediaDecoders(small, BridgeLog(list[bytes]().append))
    data = saved(image())  # of 384 bytes
    try:
        with await decoders.decode_picture(data, place="p", principal="a"):
            with pytest.raises(BridgeError) as caught:
                await picture(decoders, data, "a")
            assert caught.value.reason is Reason.QUEUE_FULL
            await picture(decoders, data, "b")
            with pytest.raises(BridgeError) as caught:
                await decoders.decode_picture(
                    data, place="p", principal="a", n_before=384
                )
            assert caught.value.reason is Reason.TOO_LARGE
        await picture(decoders, data, "a")
    finally:
        decoders.close()
    assert decoders.n_held_bytes == 0


async def test_descriptors_are_bounded_for_each_principal(decoders, monkeypatch):
    monkeypatch.setattr(decoders, "_files", SharedLimit(2))
    data = saved(image())
    with await decoders.decode_picture(data, place="p", principal="a"):
        with pytest.raises(BridgeError) as caught:
            await picture(decoders, data, "a")
        assert caught.value.reason is Reason.QUEUE_FULL
        await picture(decoders, data, "b")
    await picture(decoders, data, "a")


async def test_without_descriptors_it_is_a_failure_of_the_bridge(decoders, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(os, "pipe2", refuse)
    with pytest.raises(BridgeError) as caught:
        await picture(decoders, saved(image()))
    assert caught.value.reason is Reason.UNAVAILABLE
    assert (decoders.n_held_bytes, decoders.n_running) == (0, 0)


N_MUTATIONS = 40


@settings(max_examples=N_MUTATIONS, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["picture", "sound"]))
def test_damaged_files_are_decoded_or_refused(decoders, damaged_files, seed, kind):
    rng = random.Random(seed)  # noqa: S311  # damage
    data = bytearray(rng.choice(damaged_files[kind]))
    for _ in range(rng.randrange(1, 20)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    cut = bytes(data[: rng.randrange(1, len(data) + 1)])
    decode = decoders.decode_picture if kind == "picture" else decoders.decode_sound

    async def outcome() -> BridgeError | None:
        try:
            (await decode(cut, place="p", principal="a")).close()
        except BridgeError as error:
            return error
        return None

    if error := trio.run(outcome):
        assert error.reason is Reason.INVALID_REQUEST
        assert len(str(error)) < MAX_FAULT_CHARS + 100
    assert (decoders.n_held_bytes, decoders.n_running) == (0, 0)


@pytest.fixture(scope="module")
def damaged_files(tmp_path_factory) -> dict[str, list[bytes]]:
    """Files to damage."""
    place: Path = tmp_path_factory.mktemp("sounds")
    names = ("a.wav", "a.mp3", "a.m4a", "a.webm", "a.flac", "a.opus")
    kinds = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "AVIF", "JPEG2000")
    return {
        "picture": [saved(image(), kind) for kind in kinds],
        "sound": [write_sound(place / name, 0.1).read_bytes() for name in names],
    }


# --- decoders that a file has taken over -------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "text"),
    [
        ("crash", "ended before"),
        ("end_silently", "ended before"),
        ("write_too_much", "ended before"),
        ("fill_memory", "ended before"),
        ("claim_more", "something else"),
        ("claim_nothing", "something else"),
        ("speak_with_controls", " [2J bad"),
    ],
)
async def test_a_decoder_fails_its_own_file_alone(taken_over, deed, text):
    assert text in await fault(taken_over, deed.encode())
    assert (await picture(taken_over, saved(image()))).size == (16, 8)
    assert (taken_over.n_held_bytes, taken_over.n_running) == (0, 0)


async def test_a_decoder_that_does_not_end_is_ended_at_its_deadline(taken_over):
    taken_over._settings = replace(DEFAULTS, media_decode_s=0.1)
    assert "takes over 0.1 s" in await fault(taken_over, b"spin")


async def test_processor_time_is_bounded_by_the_kernel(taken_over, mock_clock):
    taken_over._settings = replace(DEFAULTS, media_decode_s=1)
    assert "ended before" in await fault(taken_over, b"spin")


async def test_a_cancelled_request_ends_its_decoder_and_leaves_no_descriptor(
    taken_over,
):
    await picture(taken_over, saved(image()))
    n_fds = open_fds()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(picture, taken_over, b"spin")
        await eventually(lambda: bool(children(taken_over)))
        nursery.cancel_scope.cancel()
    assert taken_over.n_running == 0
    await eventually(lambda: not children(taken_over))  # reaped
    assert open_fds() == n_fds


async def eventually(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not is_so():  # noqa: ASYNC110  # another process
            await trio.sleep(0.01)


def children(decoders: MediaDecoders) -> list[str]:
    if decoders._server is None:
        return []
    pid = server_of(decoders)
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def server_of(decoders: MediaDecoders) -> int:
    server = decoders._server
    assert server is not None
    return server.pid


async def test_a_process_that_has_ended_is_started_again(decoders):
    await picture(decoders, saved(image()))
    before = server_of(decoders)
    os.kill(before, signal.SIGKILL)
    assert (await picture(decoders, saved(image()))).size == (16, 8)
    assert server_of(decoders) != before


async def test_decoders_end_with_the_process_that_forked_them(taken_over):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fault, taken_over, b"spin")
        await eventually(
            lambda: bool(children(taken_over)) and not taken_over._forking.locked()
        )
        os.kill(server_of(taken_over), signal.SIGKILL)  # and the fault is told


async def test_a_fork_that_takes_too_long_ends_no_decoder_of_others(
    taken_over, monkeypatch
):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(picture, taken_over, b"spin", "a")
        await eventually(
            lambda: bool(children(taken_over)) and not taken_over._forking.locked()
        )
        os.kill(server_of(taken_over), signal.SIGSTOP)
        with monkeypatch.context() as patched, pytest.raises(BridgeError) as caught:
            patched.setattr("inferd.bridge.media.decoders.FORK_S", 0.01)
            await picture(taken_over, saved(image()), "b")
        assert caught.value.reason is Reason.UNAVAILABLE
        assert (await picture(taken_over, saved(image()), "b")).size == (16, 8)
        assert len(taken_over._n_decoders) == 2
        nursery.cancel_scope.cancel()
    assert len(taken_over._n_decoders) == 1


async def test_a_bridge_without_the_packages_says_so(tmp_path, monkeypatch):
    program = tmp_path / "bare.py"
    program.write_text(
        "import sys\n"
        "sys.modules['PIL'] = None\n"
        "from inferd.media_decoder.__main__ import main\n"
        "main()\n"
    )
    monkeypatch.setattr(fork_server, "PROGRAM", (str(program),))
    decoders = MediaDecoders(DEFAULTS, BridgeLog(list[bytes]().append))
    with pytest.raises(BridgeError, match=r"inferd\[media\]") as caught:
        await picture(decoders, saved(image()))
    assert caught.value.reason is Reason.UNSUPPORTED


async def test_a_process_that_does_not_start_is_told_as_a_failure_of_the_bridge(
    monkeypatch,
):
    monkeypatch.setattr(fork_server, "PROGRAM", ("-c", "pass"))
    with pytest.raises(BridgeError) as caught:
        await picture(
            MediaDecoders(DEFAULTS, BridgeLog(list[bytes]().append)), saved(image())
        )
    assert caught.value.reason is Reason.UNAVAILABLE
