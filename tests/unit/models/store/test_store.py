import errno
import os
from pathlib import Path

import pytest

from inferd.limits.models import STORE_FREE_BYTES
from inferd.models.store.blobs import DigestError, PartialFile
from inferd.models.store.directory import (
    BLOBS,
    MANIFESTS,
    PARTIAL,
    QUARANTINE,
    StoreDirectory,
    StoreError,
)
from inferd.models.store.manifest import ManifestError
from inferd.models.store.store import Damage, ModelNotInStoreError
from tests.unit.models.store.stores import (
    add_file,
    add_model,
    assert_whole,
    manifests,
    open_store,
)

A = b"a" * 1_200_000
B = b"b" * 1_000


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path / "models")
    yield store
    store.directory.close()


def test_a_model_is_found_by_its_name(store):
    manifest = add_model(store, "a/b:c", A, B)
    assert store.model("a/b:c") == manifest
    assert [*store.models()] == [manifest]
    descriptor = store.open_blob(manifest.files[0])
    assert os.pread(descriptor, len(A) + 1, 0) == A
    os.close(descriptor)


def test_a_name_that_is_not_there_is_told_with_those_that_are(store):
    add_model(store, "qwen/qwen3:0.6b", A)
    with pytest.raises(
        ModelNotInStoreError, match=r"no model qwen3; there are: qwen/qwen3"
    ):
        store.model("qwen3")


def test_a_store_that_is_not_there_is_none(tmp_path):
    assert StoreDirectory.open(tmp_path / "no", makes=False) is None


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_store_that_others_may_write_to_is_refused(tmp_path, mode):
    (tmp_path / "models").mkdir()
    (tmp_path / "models").chmod(mode)
    with pytest.raises(StoreError, match="can be written to by others"):
        StoreDirectory.open(tmp_path / "models", makes=True)


def test_what_was_written_before_an_interruption_is_gone_on_with(store):
    with PartialFile(store.directory, "key") as partial:
        partial.write(A)
    with PartialFile(store.directory, "key") as partial:
        assert partial.n_bytes == len(A)
        partial.write(B)
        sha256 = partial.finish()
    assert store.directory.path_of(BLOBS, sha256).read_bytes() == A + B
    assert store.directory.names(PARTIAL) == []


def test_a_file_is_written_by_one_command_at_a_time(store):
    with PartialFile(store.directory, "key") as partial:
        with (
            pytest.raises(StoreError, match="another command"),
            PartialFile(store.directory, "key"),
        ):
            pass
        partial.write(A)
        assert store.unused() == []
        assert store.prune() == []
        partial.finish()
    assert_whole(store)


def test_a_file_with_another_digest_goes_to_the_quarantine(store):
    with PartialFile(store.directory, "key") as partial:
        partial.write(A)
        with pytest.raises(DigestError, match="expected " + "0" * 64):
            partial.finish("0" * 64)
    assert store.directory.names(BLOBS) == store.directory.names(PARTIAL) == []
    assert len(store.directory.names(QUARANTINE)) == 1


def test_too_little_space_is_told_before_the_first_byte(store, monkeypatch):
    with PartialFile(store.directory, "key") as partial:
        partial.write(B)
        free = STORE_FREE_BYTES + 10
        monkeypatch.setattr(StoreDirectory, "free_bytes", lambda _: free)
        partial.reserve(len(B) + 10)
        with pytest.raises(StoreError, match=rf"{free} bytes free, and {free + 1} are"):
            partial.reserve(len(B) + 11)


def test_a_full_disk_keeps_what_is_whole(store, monkeypatch):
    real, budget = os.write, [1_000]

    def write(descriptor, data):
        if not budget[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        n_bytes = min(len(data), budget[0])
        budget[0] -= n_bytes
        return real(descriptor, data[:n_bytes])

    with PartialFile(store.directory, "key") as partial:
        partial.write(B[:600])
        monkeypatch.setattr(os, "write", write)
        with pytest.raises(StoreError, match="No space left on device"):
            partial.write(A)
        monkeypatch.undo()
    with PartialFile(store.directory, "key") as partial:
        assert partial.n_bytes == 600
        partial.write(B[600:])
        partial.finish()
    assert_whole(store)


def test_removing_a_model_keeps_what_others_use(store):
    add_model(store, "a", A, B)
    add_model(store, "b", B)
    [removed] = store.remove("a")
    assert removed.n_bytes == len(A)
    assert_whole(store)
    assert store.names() == ["b"]
    with pytest.raises(ModelNotInStoreError):
        store.remove("a")


def test_pruning_removes_what_no_model_uses_and_nothing_else(store):
    add_model(store, "a", A)
    add_file(store, B)
    with PartialFile(store.directory, "left") as partial:
        partial.write(b"half")
    with PartialFile(store.directory, "wrong") as partial:
        partial.write(b"wrong")
        with pytest.raises(DigestError):
            partial.finish("0" * 64)
    told = store.unused()
    assert [(file.part, file.n_bytes) for file in told] == [
        (BLOBS, len(B)),
        (PARTIAL, 4),
        (QUARANTINE, 5),
    ]
    assert store.prune() == told
    assert store.unused() == []
    assert_whole(store)


def test_nothing_is_pruned_while_a_manifest_cannot_be_read(store):
    add_model(store, "a", A)
    add_model(store, "b", B)
    store.directory.path_of(MANIFESTS, "a.json").write_text('{"format": 2}')
    for call in (store.unused, store.prune):
        with pytest.raises(ManifestError, match=r"a\.json: it has format 2"):
            call()
    [error, _] = store.models()
    assert isinstance(error, ManifestError)
    assert store.remove("a") == []
    assert [file.n_bytes for file in store.prune()] == [len(A)]


def test_what_is_no_file_among_the_manifests_hides_no_model(store, tmp_path):
    add_model(store, "b", A)
    store.directory.path_of(MANIFESTS, "a.json").mkdir()
    store.directory.path_of(MANIFESTS, "c.json").symlink_to(tmp_path)
    first, model, last = store.models()
    assert model == store.model("b")
    for error, name in ((first, "a"), (last, "c")):
        assert isinstance(error, ManifestError)
        path = store.directory.path_of(MANIFESTS, f"{name}.json")
        assert str(error) == f"{path} is not a regular file"


def test_the_record_of_a_running_download_is_not_pruned(store, tmp_path):
    record = store.directory.path_of(PARTIAL, "key.json")
    with PartialFile(store.directory, "key"):
        record.write_text("{}")
        assert open_store(tmp_path / "models").prune() == []
        assert record.exists()
    assert [each.name for each in store.prune()] == ["key", "key.json"]


def test_a_changed_file_is_found_moved_and_can_be_replaced(store):
    manifest = add_model(store, "a", A, B)
    path = store.directory.path_of(BLOBS, manifest.files[0].sha256)
    path.write_bytes(b"x" + A[1:])
    store.directory.path_of(BLOBS, manifest.files[1].sha256).write_bytes(b"short")
    seen: list[int] = []
    first, second = store.verify(manifest, seen.append)
    assert isinstance(first, Damage)
    assert "its SHA-256 is" in first.reason
    assert "has 5 bytes, not 1000" in second.reason
    assert seen[-1] == len(A)
    assert not path.exists()
    assert [store.has_blob(file) for file in manifest.files] == [False, False]
    add_model(store, "a", A, B)
    assert store.verify(manifest, seen.append) == []


def test_a_model_whose_files_are_missing_is_not_published(store):
    manifest = add_model(store, "a", A)
    store.remove("a")
    with pytest.raises(StoreError, match="is missing"):
        store.publish(manifest)
    assert manifests(store) == []


def test_a_change_waits_for_another_and_then_says_so(store):
    other = open_store(store.directory.path).directory
    with other, other.locked(), pytest.raises(StoreError, match="another process"):
        with store.directory.locked(wait_s=0.05):
            pass


def test_links_in_a_store_are_not_followed(store, tmp_path):
    (tmp_path / "secret").write_bytes(B)
    manifest = add_model(store, "a", B)
    path = store.directory.path_of(BLOBS, manifest.files[0].sha256)
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        store.open_blob(manifest.files[0])


def test_a_store_to_which_nothing_refers_has_no_descriptors(store):
    before = sorted(Path("/proc/self/fd").iterdir())
    add_model(open_store(store.directory.path), "a", B)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_file_that_a_command_is_about_to_use_is_not_pruned(store, tmp_path):
    other = open_store(tmp_path / "models")
    with PartialFile(store.directory, "key") as partial:
        partial.write(A)
        digest = partial.finish()
        assert other.prune() == []
        with PartialFile(store.directory, "wrong") as wrong:
            wrong.write(B)
            wrong.finish()
    first, second = store.hold_blob(digest), store.hold_blob(digest)
    os.close(first)
    assert [file.n_bytes for file in other.prune()] == [len(B)]
    os.close(second)
    assert [file.name for file in store.prune()] == [digest]
    with pytest.raises(FileNotFoundError):
        store.hold_blob(digest)
