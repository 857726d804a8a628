import os
import subprocess
from pathlib import Path

import pytest

from inferd.doctor.check import Verdict
from inferd.doctor.storage import (
    MIN_FREE_BYTES,
    LogPlace,
    Space,
    check_disk,
    check_log_directory,
    check_store,
    space_of,
    unused_bytes,
)
from inferd.models.store.directory import StoreDirectory
from inferd.models.store.manifest import Manifest, StoredFile
from inferd.models.store.store import ModelStore
from inferd.paths import SYSTEM_MODELS


def follow(hint):
    """Do what a hint says; this test is root or the owner already."""
    subprocess.run(["sh", "-c", hint.replace("sudo ", "")], check=True)


def place(path, *, owner=None, can_be_made=True):
    return LogPlace(path, os.geteuid() if owner is None else owner, can_be_made)


# --- the log ----------------------------------------------------------------------------


def test_without_a_file_there_is_nothing_to_check():
    assert check_log_directory(None).verdict is Verdict.OK


def test_a_missing_directory_is_made_by_the_daemon_or_by_the_hint(short_dir):
    path = short_dir / "a" / "logs"
    assert check_log_directory(place(path)).verdict is Verdict.OK
    finding = check_log_directory(place(path, can_be_made=False))
    assert finding.verdict is Verdict.WARNING
    follow(finding.hint)
    assert check_log_directory(place(path, can_be_made=False)).verdict is Verdict.OK


def test_a_directory_that_others_may_write_to_is_told(short_dir):
    short_dir.chmod(0o777)
    finding = check_log_directory(place(short_dir))
    assert (finding.verdict, finding.hint) == (
        Verdict.WARNING,
        f"chmod o-w {short_dir}",
    )
    follow(finding.hint)
    assert check_log_directory(place(short_dir)).verdict is Verdict.OK


def test_a_file_in_its_place_is_moved_aside_by_the_hint(short_dir):
    path = short_dir / "logs"
    path.write_text("kept")
    finding = check_log_directory(place(path))
    assert finding.verdict is Verdict.WARNING
    follow(finding.hint)
    assert check_log_directory(place(path)).verdict is Verdict.OK
    assert (short_dir / "logs.old").read_text() == "kept"


def test_a_directory_of_another_user_is_told(short_dir):
    other = os.geteuid() + 1
    finding = check_log_directory(place(short_dir, owner=other))
    assert finding.verdict is Verdict.WARNING
    assert finding.hint == f"sudo chown --no-dereference {other} {short_dir}"
    assert check_log_directory(place(short_dir, owner=0)).verdict is Verdict.OK


# --- the disk ---------------------------------------------------------------------------

STORE, LOG = Path("/proc/store"), Path("/proc/log")
MUCH = Space(10 * MIN_FREE_BYTES, 100 * MIN_FREE_BYTES)
LITTLE = Space(MIN_FREE_BYTES - 1, 100 * MIN_FREE_BYTES)


def test_enough_space_is_told_with_the_least():
    spaces = {STORE: MUCH, LOG: MUCH._replace(free=MIN_FREE_BYTES)}
    finding = check_disk(spaces, STORE, 0)
    assert finding.verdict is Verdict.OK
    assert finding.detail == "at least 64 MiB free where inferd writes"


def test_a_small_file_system_may_have_less():
    small = Space(MIN_FREE_BYTES // 2, MIN_FREE_BYTES)
    assert check_disk({LOG: small}, STORE, 0).verdict is Verdict.OK
    full = small._replace(free=0)
    assert check_disk({LOG: full}, STORE, 0).verdict is Verdict.WARNING


def test_a_full_disk_is_told_with_what_takes_space():
    finding = check_disk({STORE: MUCH, LOG: LITTLE}, STORE, 5)
    assert finding.verdict is Verdict.WARNING
    assert finding.detail == "64 MiB free at /proc/log; 64 MiB should be"
    assert finding.hint == "du -xh --max-depth=1 /proc | sort -h | tail"


def test_a_full_store_is_told_with_what_can_be_pruned():
    finding = check_disk({STORE: LITTLE}, STORE, 3 * 2**20)
    assert "3 MiB of it are files that no model uses" in finding.detail
    assert finding.hint == "inferd model prune"
    system = check_disk({SYSTEM_MODELS: LITTLE}, SYSTEM_MODELS, 1)
    assert system.hint == "sudo inferd model prune --system"


def test_the_space_of_a_missing_directory_is_that_above_it(short_dir):
    assert space_of(short_dir / "a" / "b").total == space_of(short_dir).total


# --- the store --------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "models"
    directory = StoreDirectory.open(path, makes=True)
    assert directory is not None
    with directory:
        yield ModelStore(directory)


def test_no_store_and_an_empty_one_are_well(store, tmp_path):
    assert "there is none" in check_store(tmp_path / "missing").detail
    assert check_store(tmp_path / "models").detail.startswith("0 models in ")


def test_a_store_that_others_may_write_to_is_told_and_mended(store, tmp_path):
    (tmp_path / "models").chmod(0o777)
    finding = check_store(tmp_path / "models")
    assert finding.verdict is Verdict.FAILED
    assert f"chmod go-w {tmp_path}/models" in finding.detail
    follow(f"chmod go-w {tmp_path}/models")
    assert check_store(tmp_path / "models").verdict is Verdict.OK


def test_a_model_without_its_file_is_told(store, tmp_path):
    file = StoredFile(role="model", name="m.gguf", sha256="0" * 64, n_bytes=5)
    blob = tmp_path / "models" / "blobs" / file.sha256
    blob.write_bytes(b"12345")
    store.publish(
        Manifest(
            name="me/m:q4",
            kind="llamacpp",
            source="import:/srv/m.gguf",
            created="2026-11-23T00:00:00Z",
            files=(file,),
        )
    )
    assert check_store(tmp_path / "models").verdict is Verdict.OK
    blob.unlink()
    finding = check_store(tmp_path / "models")
    assert finding.verdict is Verdict.WARNING
    assert finding.hint.startswith("inferd model remove me/m:q4; then bring it again")
    store.remove("me/m:q4")
    assert check_store(tmp_path / "models").verdict is Verdict.OK


def test_a_manifest_that_cannot_be_read_is_told(store, tmp_path):
    (tmp_path / "models" / "manifests" / "me+m@q4.json").write_text('{"format": 9}')
    finding = check_store(tmp_path / "models")
    assert finding.verdict is Verdict.WARNING
    assert finding.hint == "inferd model remove me/m:q4; then bring it again"
    store.remove("me/m:q4")
    assert check_store(tmp_path / "models").verdict is Verdict.OK


def test_files_that_nothing_uses_are_counted(store, tmp_path):
    assert unused_bytes(tmp_path / "missing") == 0
    (tmp_path / "models" / "blobs" / ("0" * 64)).write_bytes(b"12345")
    assert unused_bytes(tmp_path / "models") == 5
