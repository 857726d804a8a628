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
    return lambda reference: find_model(reference, cache=tmp_path, stores=stores)


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
        find_model("tiny", cache=tmp_path, stores=[tmp_path / "none"])


def test_a_model_whose_files_are_missing_is_refused(find, tmp_path):
    [blob] = (tmp_path / "own/blobs").iterdir()
    blob.write_bytes(A[:3])
    with pytest.raises(ConfigError, match=r"m\.gguf is missing or not complete"):
        find("me/tiny:q4")


def test_a_split_model_is_refused(find, tmp_path):
    add_model(open_store(tmp_path / "own"), "split", A, B)
    with pytest.raises(
        ConfigError, match="split is in 2 files, which can be loaded by"
    ):
        find("split")


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
