import hashlib
from pathlib import Path

import pytest

from inferd.config.find_model import find_model
from inferd.config.kinds.llamacpp import LLAMACPP, LlamaCppSettings
from inferd.config.kinds.model_paths import LocatedFile
from inferd.config.kinds.whispercpp import WHISPERCPP, WhisperCppSettings
from inferd.config.settings import ConfigError
from inferd.models.store.manifest import Manifest
from tests.unit.models.store.stores import add_file, add_model, open_store

A, B = b"GGUF a", b"GGUF b"


@pytest.fixture
def find(tmp_path):
    """Find a model in one of two stores; the second has the same name for another."""
    add_model(open_store(tmp_path / "own"), "me/tiny:q4", A)
    add_model(open_store(tmp_path / "system"), "me/tiny:q4", B)
    add_model(open_store(tmp_path / "system"), "theirs", B)
    stores = [tmp_path / "none", tmp_path / "own", tmp_path / "system"]
    return lambda reference: find_model(reference, stores=stores)


def read(file: LocatedFile) -> bytes:
    return Path(file.path).read_bytes()


def test_the_first_store_that_has_a_model_counts(find):
    assert read(find("me/tiny:q4").model) == A
    assert read(find("theirs").model) == B
    assert find("theirs").kind == "llamacpp"
    assert find("theirs").model.sha256 is not None


@pytest.mark.parametrize("path", ["/m", "./m", "../m", "~/m", "m.gguf", "w.bin"])
def test_what_looks_like_a_path_is_one(find, path):
    assert find(path) is None


def test_a_file_that_exists_is_a_path(find, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").write_bytes(A)
    assert find("theirs") is None


def test_a_model_that_is_not_there_is_told_with_those_that_are(find, tmp_path):
    with pytest.raises(ConfigError) as error:
        find("me/tinny:q4")
    for store in ("own", "system"):
        told = f"{tmp_path / store} has no model me/tinny:q4; there are: me/tiny:q4"
        assert told in str(error.value)
    with pytest.raises(ConfigError, match="no file of this path, and no model store"):
        find_model("tiny", stores=[tmp_path / "none"])


def test_a_store_that_is_not_trusted_hides_no_other(find, tmp_path):
    (tmp_path / "own").chmod(0o777)
    assert read(find("me/tiny:q4").model) == B
    for reference in ("embedded:chat", "tiny"):
        with pytest.raises(
            ConfigError, match="own can be written to by others"
        ) as error:
            find(reference)
        assert f"{tmp_path / 'system'} has no model {reference}" in str(error.value)


def test_a_model_whose_files_are_missing_is_refused(find, tmp_path):
    [blob] = (tmp_path / "own/blobs").iterdir()
    blob.write_bytes(A[:3])
    with pytest.raises(ConfigError, match=r"m\.gguf is missing or not complete"):
        find("me/tiny:q4")


def test_the_parts_of_a_split_model_come_in_order_with_their_digests(find, tmp_path):
    add_model(open_store(tmp_path / "own"), "split", A, B)
    located = LLAMACPP.locate(LlamaCppSettings(name="chat", model="split"), find)
    paths = (located.model, *located.model_parts)
    assert [Path(path).read_bytes() for path in paths] == [A, B]
    assert located.sha256 == tuple(hashlib.sha256(each).hexdigest() for each in (A, B))
    assert LLAMACPP.locate(located, find) == located


def test_the_parts_of_a_path_are_those_beside_it_or_those_that_are_named(find):
    settings = LlamaCppSettings(name="chat", model="/d/m-00001-of-00003.gguf")
    located = LLAMACPP.locate(settings, find)
    assert located.model_parts == (
        "/d/m-00002-of-00003.gguf",
        "/d/m-00003-of-00003.gguf",
    )
    assert located.sha256 is None
    settings = LlamaCppSettings(name="chat", model="/d/a", model_parts=("/d/b",))
    assert LLAMACPP.locate(settings, find).model_parts == ("/d/b",)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"sha256": "0" * 64}, "in 2 files, and sha256 has 1; allowed: a list of 2"),
        ({"sha256": ("0" * 64,) * 3}, "the model is in 2 files, and sha256 has 3"),
        (
            {"model_parts": ("/b",)},
            r"model_parts = \['/b'\] goes with the path of a file",
        ),
        ({"model": "/m-00001-of-00300.gguf"}, "300.gguf: 300 parts, over 256"),
    ],
)
def test_digests_and_parts_that_do_not_fit_are_refused(find, tmp_path, fields, reason):
    add_model(open_store(tmp_path / "own"), "split", A, B)
    settings = LlamaCppSettings(**{"name": "chat", "model": "split", **fields})
    with pytest.raises(ConfigError, match=f"^backend chat: .*{reason}"):
        LLAMACPP.locate(settings, find)


def test_a_model_in_more_files_than_any_is_refused(find, tmp_path):
    contents = [b"GGUF %d" % number for number in range(257)]
    add_model(open_store(tmp_path / "own"), "split", *contents)
    with pytest.raises(ConfigError, match="split is in 257 files, over 256"):
        find("split")


def test_whisper_cpp_loads_one_file(find, tmp_path):
    store = open_store(tmp_path / "own")
    files = (add_file(store, A), add_file(store, B))
    store.publish(Manifest(name="ears", kind="whispercpp", source="test", files=files))
    with pytest.raises(ConfigError, match="ears is in 2 files, and whisper.cpp loads"):
        WHISPERCPP.locate(WhisperCppSettings(name="speech", model="ears"), find)


def test_a_manifest_of_another_version_is_refused(find, tmp_path):
    (tmp_path / "own/manifests/me+tiny@q4.json").write_text('{"format": 7}')
    with pytest.raises(ConfigError, match="format 7, and this version reads format 1"):
        find("me/tiny:q4")


def test_a_model_comes_with_its_digest_and_its_projector(find, tmp_path):
    store = open_store(tmp_path / "own")
    model = add_file(store, A)
    projector = add_file(store, b"GGUF projector")
    files = (model, type(model)(**{**_fields(projector), "role": "projector"}))
    store.publish(Manifest(name="seer", source="test", files=files))
    located = LLAMACPP.locate(LlamaCppSettings(name="chat", model="seer"), find)
    assert (located.sha256, located.mmproj_sha256) == (model.sha256, projector.sha256)
    assert located.mmproj is not None
    assert located.mmproj.endswith(projector.sha256)
    own = LlamaCppSettings(name="chat", model="seer", mmproj="/p.gguf", sha256="0" * 64)
    located = LLAMACPP.locate(own, find)
    assert (located.mmproj, located.mmproj_sha256) == ("/p.gguf", None)
    assert located.sha256 == "0" * 64  # which the worker compares and refuses


def _fields(file):
    return {"name": file.name, "sha256": file.sha256, "n_bytes": file.n_bytes}


def test_a_model_for_another_kind_is_refused(find):
    with pytest.raises(ConfigError) as error:
        WHISPERCPP.locate(WhisperCppSettings(name="ears", model="theirs"), find)
    assert str(error.value) == (
        'backend ears: theirs is for kind = "llamacpp", not "whispercpp"'
    )
