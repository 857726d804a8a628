import io

import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from inferd.client.media import pictures
from inferd.client.media.pictures import PictureError, read_picture
from inferd.limits.worker import MEDIA_PIXELS

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
FORMATS = ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000"]


def two(mode="RGB", size=(16, 8)):
    """A picture whose left half is red, and its right half blue."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, *size))
    return image.convert(mode)


@pytest.fixture
def read(tmp_path):
    """Save an image, or write bytes, and read the file."""

    def read_saved(image, kind="PNG", **options):
        path = tmp_path / "picture"
        if isinstance(image, bytes):
            path.write_bytes(image)
        else:
            image.save(path, kind, **options)
        picture = read_picture(path)
        octets = b"".join(picture.strips())
        assert len(octets) == 3 * picture.width * picture.height
        return Image.frombytes("RGB", (picture.width, picture.height), octets)

    return read_saved


def corners(image):
    right = image.width - 1
    return [image.getpixel((x, y)) for x in (0, right) for y in (0, image.height - 1)]


def is_like(pixels, wanted):
    pairs = zip(sum(pixels, ()), sum(wanted, ()), strict=True)
    return all(abs(ours - theirs) < 30 for ours, theirs in pairs)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_of_any_usual_kind_is_read(read, kind):
    image = read(two(size=(64, 32)), kind)
    assert image.size == (64, 32)
    assert is_like(corners(image), [RED, RED, BLUE, BLUE])


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("CMYK", "JPEG"), ("P", "PNG"), ("RGBA", "PNG"), ("YCbCr", "JPEG")],
)
def test_any_mode_becomes_rgb(read, mode, kind):
    assert is_like(corners(read(two(mode), kind)), [RED, RED, BLUE, BLUE])


@pytest.mark.parametrize("mode", ["L", "1", "I;16", "I"])
def test_grey_stays_grey_whatever_its_depth(read, mode):
    image = Image.new(mode, (2, 2), {"L": 128, "1": 255}.get(mode, 32_896))
    kind = "TIFF" if mode == "I" else "PNG"
    assert corners(read(image, kind)) == [(255 if mode == "1" else 128,) * 3] * 4


def test_what_is_transparent_is_white(read):
    image = two("RGBA")
    image.putalpha(Image.new("L", image.size, 0))
    assert corners(read(image)) == [WHITE] * 4
    indexed = two("P")
    assert (
        read(indexed, transparency=indexed.getpixel((0, 0))).getpixel((0, 0)) == WHITE
    )


def test_what_is_half_transparent_is_paler(read):
    image = two("RGBA")
    image.putalpha(128)
    assert corners(read(image))[0] == (255, 127, 127)


def test_a_picture_is_turned_as_its_camera_was(read):
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter to the right
    image = read(two(size=(64, 32)), "JPEG", exif=exif)
    assert image.size == (32, 64)
    assert is_like(corners(image), [RED, BLUE, RED, BLUE])


def test_of_a_film_the_first_picture_is_taken(read):
    film = [Image.new("RGB", (4, 4), colour) for colour in (RED, BLUE)]
    assert corners(read(film[0], "GIF", save_all=True, append_images=film[1:])) == (
        [RED] * 4
    )


@pytest.mark.parametrize("size", [(1, 1), (1, 3), (1, 7), (3, 1), (7, 5)])
def test_strips_are_all_rows_in_order(read, size, monkeypatch):
    monkeypatch.setattr(pictures, "STRIP_BYTES", 10)
    image = Image.effect_noise(size, 99).convert("RGB")
    assert read(image).tobytes() == image.tobytes()


def test_a_strip_has_as_many_rows_as_fit(monkeypatch):
    monkeypatch.setattr(pictures, "STRIP_BYTES", 60)
    strips = [len(each) for each in pictures.Picture(two(size=(8, 5))).strips()]
    assert strips == [48, 48, 24]


# --- what cannot be used ----------------------------------------------------------------


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(
    read, monkeypatch
):
    monkeypatch.setattr(pictures, "MAX_PICTURE_PIXELS", 127)
    with pytest.raises(PictureError, match="16 x 8 pixels, at most 127 are allowed"):
        read(two())
    monkeypatch.setattr(pictures, "MAX_PICTURE_PIXELS", 128)
    assert read(two()).size == (16, 8)


def test_as_large_a_picture_is_read_as_models_look_at():
    assert pictures.MAX_PICTURE_PIXELS == MEDIA_PIXELS


def test_a_file_that_claims_to_be_huge_is_refused(read):
    head = b"P6 99999 99999 255\n"
    with pytest.raises(PictureError, match=r"exceeds limit|at most"):
        read(head + bytes(99))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF"])
def test_a_file_that_breaks_off_is_refused(read, kind):
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 99).convert("RGB").save(whole, kind)
    with pytest.raises(PictureError):
        read(whole.getvalue()[: len(whole.getvalue()) // 2])


@pytest.mark.parametrize("content", [b"", b"hello, world", bytes(999)])
def test_what_is_no_picture_is_refused(read, content):
    with pytest.raises(PictureError, match="not an image in one of"):
        read(content)


@pytest.mark.parametrize("head", [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"])
def test_what_would_have_another_program_run_is_no_picture(read, head):
    with pytest.raises(PictureError, match="not an image in one of"):
        read(head)


def test_fractions_are_refused(read):
    with pytest.raises(PictureError, match="floating-point"):
        read(Image.new("F", (2, 2)), "TIFF")


@pytest.mark.parametrize(
    ("name", "words"), [("gone", "No such file or directory"), (".", "Is a directory")]
)
def test_a_file_that_cannot_be_opened_has_the_system_s_message(tmp_path, name, words):
    with pytest.raises(PictureError, match=words):
        read_picture(tmp_path / name)


def saved(kind):
    whole = io.BytesIO()
    two().save(whole, kind)
    return whole.getvalue()


SAVED = {kind: saved(kind) for kind in FORMATS}


@pytest.mark.slow
@settings(max_examples=300)
@given(st.sampled_from(FORMATS), st.data())
def test_a_file_with_a_hole_is_a_picture_or_refused_in_one_line(
    tmp_path_factory, kind, data
):
    broken = bytearray(SAVED[kind])
    at = data.draw(st.integers(0, len(broken) - 1))
    hole = data.draw(st.binary(min_size=1, max_size=16))
    broken[at : at + len(hole)] = hole
    path = tmp_path_factory.getbasetemp() / "hole"
    path.write_bytes(broken)
    fault = "a picture"
    try:
        read_picture(path)
    except PictureError as error:
        fault = str(error)
    assert fault.splitlines() == [fault]
