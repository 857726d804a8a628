import msgspec
import pytest

from inferd.limits.models import MANIFEST_MAX_BYTES, MODEL_MAX_FILES
from inferd.models.store.manifest import (
    Manifest,
    ManifestError,
    StoredFile,
    decode_manifest,
    encode_manifest,
)
from tests.cases import each_case

FILE = StoredFile(name="m.gguf", sha256="a" * 64, n_bytes=7)
PROJECTOR = StoredFile(name="p.gguf", sha256="b" * 64, n_bytes=5, role="projector")
MANIFEST = Manifest(name="a/b:c", source="x", files=(FILE, PROJECTOR, FILE))


def test_a_manifest_is_read_as_it_was_written():
    assert decode_manifest(encode_manifest(MANIFEST), "a/b:c") == MANIFEST
    assert MANIFEST.n_bytes == 12
    assert MANIFEST.files_of("projector") == (PROJECTOR,)


def changed(**fields):
    plain = msgspec.to_builtins(MANIFEST) | fields
    return msgspec.json.encode(plain)


@each_case(
    ("data", "words"),
    [
        (changed(format=2), "it has format 2, and this version reads format 1"),
        (b'{"format": 2, "anything": []}', "it has format 2"),
        (changed(name="a/b:d"), "it is that of a/b:d"),
        (changed(name="../b"), "it is not valid"),
        (changed(more=1), "unknown field `more`"),
        (changed(files=[]), "length >= 1"),
        (changed(files=[{"name": "m", "sha256": "A" * 64, "n_bytes": 1}]), "regex"),
        (changed(files=[{"name": "m", "sha256": "a" * 64, "n_bytes": 0}]), ">= 1"),
        (
            changed(files=[{"name": "../m", "sha256": "a" * 64, "n_bytes": 1}]),
            "'../m' is no name of a file",
        ),
        (
            changed(files=[{"name": "a\nb", "sha256": "a" * 64, "n_bytes": 1}]),
            r"'a\nb' is no name of a file",
        ),
        (
            changed(files=[msgspec.to_builtins(PROJECTOR)]),
            "none of its files is a model",
        ),
        (b"{", "it is not valid"),
        (b"\xff", "it is not valid"),
        (b" " * (MANIFEST_MAX_BYTES + 1), f"it has over {MANIFEST_MAX_BYTES} bytes"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why(data, words):
    with pytest.raises(ManifestError) as error:
        decode_manifest(data, "a/b:c")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_largest_manifest_fits_its_bound():
    longest = msgspec.structs.replace(FILE, name="x" * 255, role="projector")
    files = (FILE, *[longest] * (MODEL_MAX_FILES - 1))
    data = encode_manifest(msgspec.structs.replace(MANIFEST, files=files))
    assert len(data) <= MANIFEST_MAX_BYTES


def test_a_manifest_that_would_not_be_read_is_not_written():
    with pytest.raises(ManifestError):
        encode_manifest(msgspec.structs.replace(MANIFEST, name="../x"))
