import os

import pytest

from inferd.models.bring import Means, bring_file
from inferd.models.found.model import FoundFile
from inferd.models.store.directory import (
    BLOBS,
    MANIFESTS,
    PARTIAL,
    StoreDirectory,
    StoreError,
)
from tests.daemon.harness import MakeDaemon, llamacpp
from tests.model.tiny import write_tiny_model
from tests.unit.models.store.stores import add_model, open_store

OTHER = 20_041
MODEL = b"GGUF" + b"w" * 10_000
OURS, THEIRS = b"GGUF ours", b"GGUF theirs"


def bring(store, path):
    return bring_file(store.directory, FoundFile(path, path.name), lambda *_: None)


@pytest.mark.root
@pytest.mark.parametrize("level", ["top", "top/a", "top/a/models"])
def test_a_store_below_what_another_user_owns_is_refused(level, tmp_path):
    path = tmp_path / "top/a/models"
    open_store(path).directory.close()
    os.chown(tmp_path / level, OTHER, OTHER)
    for makes in (False, True):
        with pytest.raises(StoreError, match=f"belongs to another user, uid {OTHER}"):
            StoreDirectory.open(path, makes=makes)


@pytest.mark.parametrize("level", ["top", "top/a", "top/a/models"])
def test_a_store_below_what_others_may_write_to_is_refused(level, tmp_path):
    path = tmp_path / "top/a/models"
    open_store(path).directory.close()
    (tmp_path / level).chmod(0o777)
    for makes in (False, True):
        with pytest.raises(StoreError, match="can be written to by others"):
            StoreDirectory.open(path, makes=makes)


@pytest.mark.parametrize("part", [BLOBS, MANIFESTS, PARTIAL, "quarantine", "lock"])
def test_a_link_in_a_store_leads_nowhere(part, tmp_path):
    """A part of the store, or its lock, is a link to a directory, or a file, elsewhere."""
    store = open_store(tmp_path / "models")
    add_model(store, "m", OURS)
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "models" / part
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "elsewhere" / ("file" if part == "lock" else ""))
    with pytest.raises(OSError, match="symbolic links|Not a directory"):
        add_model(open_store(tmp_path / "models"), "n", THEIRS)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("mode", [0o664, 0o666, 0o646])
def test_a_file_that_others_may_change_is_no_part_of_the_store(mode, tmp_path):
    store = open_store(tmp_path / "models")
    path = tmp_path / "m.gguf"
    path.write_bytes(MODEL)
    path.chmod(mode)
    file, means, _ = bring(store, path)
    assert means != Means.LINKED
    path.write_bytes(THEIRS)
    assert store.directory.path_of(BLOBS, file.sha256).read_bytes() == MODEL


@pytest.mark.root
def test_a_file_of_another_user_is_no_part_of_the_store(tmp_path):
    store = open_store(tmp_path / "models")
    path = tmp_path / "m.gguf"
    path.write_bytes(MODEL)
    os.chown(path, OTHER, OTHER)
    assert bring(store, path).means != Means.LINKED


@pytest.mark.model
@pytest.mark.slow
def test_a_file_of_the_store_that_was_changed_is_not_loaded(
    tmp_path, make_daemon: MakeDaemon
):
    path = write_tiny_model(tmp_path / "m.gguf")
    with open_store(tmp_path / "models").directory as directory:
        brought = bring_file(directory, FoundFile(path, path.name), lambda *_: None)
        blob = directory.path_of(BLOBS, brought.file.sha256)
    settings = llamacpp(blob, n_ctx=512, sha256=brought.file.sha256)
    make_daemon({"backend": [settings]}).start()
    with path.open("r+b") as file:  # linked
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    assert "SHA-256" in make_daemon({"backend": [settings]}).refusal()
