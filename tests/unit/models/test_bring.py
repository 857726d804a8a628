import os

import pytest

from inferd.models.bring import Means, bring_file
from inferd.models.found.model import FoundFile
from inferd.models.store.blobs import DigestError
from inferd.models.store.directory import BLOBS, PARTIAL, QUARANTINE, StoreError
from tests.unit.models.store.stores import assert_whole, open_store

MODEL = b"GGUF" + b"weights" * 1_000


@pytest.fixture
def directory(tmp_path):
    with open_store(tmp_path / "models").directory as directory:
        yield directory


def write(path, data=MODEL, mode=0o644):
    path.write_bytes(data)
    path.chmod(mode)
    return path


def bring(directory, path, **fields):
    seen = []
    found = FoundFile(path, path.name, **fields)
    brought = bring_file(directory, found, lambda *done: seen.append(done))
    assert seen[-1] == (len(MODEL), len(MODEL))
    return brought


def test_one_s_own_file_is_linked(directory, tmp_path):
    path = write(tmp_path / "m.gguf")
    file, means, kind = bring(directory, path)
    assert (means, kind) == (Means.LINKED, "llamacpp")
    assert directory.status(BLOBS, file.sha256).st_ino == path.stat().st_ino
    assert bring(directory, path).means == Means.KEPT
    assert directory.names(PARTIAL) == []


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_to_is_copied(directory, tmp_path, mode):
    path = write(tmp_path / "m.gguf", mode=mode)
    file, means, _ = bring(directory, path)
    assert means in {Means.COPIED, Means.SHARED}
    path.write_bytes(b"GGUF changed")
    assert directory.path_of(BLOBS, file.sha256).read_bytes() == MODEL


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_file_that_services_may_not_read_is_copied_by_root(
    directory, tmp_path, monkeypatch, mode
):
    monkeypatch.setattr("inferd.models.bring.os.geteuid", lambda: 0)
    path = write(tmp_path / "m.gguf", mode=mode)
    file, means, _ = bring(directory, path)
    assert means in {Means.COPIED, Means.SHARED}
    assert directory.status(BLOBS, file.sha256).st_mode & 0o004


@pytest.mark.root
def test_another_user_s_file_is_copied(directory, tmp_path):
    path = write(tmp_path / "m.gguf")
    os.chown(path, 12_345, 12_345)
    assert bring(directory, path).means in {Means.COPIED, Means.SHARED}


def test_a_link_that_was_left_is_never_written_to(directory, tmp_path, monkeypatch):
    path = write(tmp_path / "m.gguf")

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("inferd.models.bring.hash_file", die)
        bring(directory, path)
    assert len(directory.names(PARTIAL)) == 1
    assert bring(directory, path).means == Means.LINKED
    assert path.read_bytes() == MODEL
    path.chmod(0o666)
    assert bring(directory, path).means in {Means.COPIED, Means.SHARED}
    assert path.read_bytes() == MODEL


@pytest.mark.parametrize("mode", [0o644, 0o664])
def test_a_file_that_differs_from_its_digest_is_left_where_it_is(
    directory, tmp_path, mode
):
    """The first one is linked, the second one copied."""
    path = write(tmp_path / "m.gguf", mode=mode)
    with pytest.raises(DigestError, match="expected 000"):
        bring(directory, path, sha256="0" * 64)
    assert path.read_bytes() == MODEL
    for part in (BLOBS, PARTIAL, QUARANTINE):
        assert directory.names(part) == []


def test_what_is_no_model_is_refused(directory, tmp_path):
    with pytest.raises(StoreError, match="neither a GGUF file nor a model of whisper"):
        bring(directory, write(tmp_path / "page", b"<html>"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="not a regular file"):
        bring(directory, tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        bring(directory, tmp_path / "no")


def test_a_model_of_whisper_is_known_by_its_first_bytes(directory, tmp_path):
    data = b"lmgg" + MODEL[4:]
    assert bring(directory, write(tmp_path / "w.bin", data)).kind == "whispercpp"


def test_a_file_that_is_being_brought_is_not_linked_twice(directory, tmp_path):
    path = write(tmp_path / "m.gguf")

    def again(*_):
        with open_store(directory.path).directory as other:
            assert bring(other, path).means in {Means.COPIED, Means.SHARED}

    found = FoundFile(path, path.name)
    assert bring_file(directory, found, again).means == Means.KEPT
    assert_whole(open_store(directory.path))


def test_a_blob_that_is_not_complete_is_replaced(directory, tmp_path):
    path = write(tmp_path / "m.gguf", mode=0o666)
    file, *_ = bring(directory, path)
    directory.path_of(BLOBS, file.sha256).write_bytes(b"GGUF")
    path.chmod(0o644)
    assert bring(directory, path).means == Means.LINKED
    assert directory.path_of(BLOBS, file.sha256).read_bytes() == MODEL
