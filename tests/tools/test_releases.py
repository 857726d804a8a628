"""Versions side by side, one of them in use."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from inferd.trusted_path import UntrustedError
from tools.releases import (
    CURRENT,
    MODELS_LISTED,
    OLDER_LAYOUT,
    PREVIOUS,
    STORED_LISTED,
    Releases,
    differences,
    seal,
)

MODEL = b"weights"
SHA256 = hashlib.sha256(MODEL).hexdigest()


@pytest.fixture
def releases(tmp_path: Path) -> Releases:
    tmp_path.chmod(0o755)
    return Releases(tmp_path / "inferd")


def make(releases: Releases, *models: str) -> Path:
    """Make a release with two files and a link among them."""
    release = releases.stage("1.2")
    (release / "share").mkdir()
    (release / "bin").mkdir()
    (release / "bin" / "inferd").write_text(release.name)
    (release / "bin" / "python").symlink_to("/usr/bin/python3")
    (release / MODELS_LISTED).write_text("\n".join(models))
    seal(release)
    return release


def put_model(releases: Releases, sha256: str = SHA256) -> Path:
    path = releases.prefix / "models" / sha256 / "tiny.gguf"
    path.parent.mkdir()
    path.write_bytes(MODEL)
    return path


def test_a_new_release_has_a_directory_that_none_had(releases):
    names = [releases.stage(version).name for version in ("1.2", "1.2", "1.10")]
    assert names == ["1.2-1", "1.2-2", "1.10-3"]


def test_nothing_is_in_use_at_first(releases):
    assert (releases.named(CURRENT), releases.named(PREVIOUS)) == (None, None)


def test_the_one_before_is_kept_at_hand(releases):
    first, second, third = (make(releases) for _ in range(3))
    for release, before in ((first, None), (second, first), (third, second)):
        releases.switch(release)
        assert (releases.named(CURRENT), releases.named(PREVIOUS)) == (release, before)
    releases.switch(second)
    assert (releases.named(CURRENT), releases.named(PREVIOUS)) == (second, third)
    releases.switch(second)
    assert releases.named(PREVIOUS) == third


def test_a_reader_finds_the_old_or_the_new_one_and_never_none(releases):
    first, second = make(releases), make(releases)
    releases.switch(first)
    rename = os.rename
    seen = []

    def watched(*arguments, **options):
        seen.append((releases.prefix / CURRENT / "bin" / "inferd").read_text())
        rename(*arguments, **options)
        seen.append((releases.prefix / CURRENT / "bin" / "inferd").read_text())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.rename", watched)
        releases.switch(second)
    assert seen == ["1.2-1", "1.2-1", "1.2-1", "1.2-2"]


def test_what_runs_keeps_its_files(releases):
    first, second = make(releases), make(releases)
    releases.switch(first)
    with (releases.prefix / CURRENT / "bin" / "inferd").open() as running:
        status = os.fstat(running.fileno())
        releases.switch(second)
        releases.prune()
        assert os.fstat(running.fileno()) == status
        assert running.read() == "1.2-1"


def test_what_is_neither_in_use_nor_kept_goes(releases):
    model, other = put_model(releases), put_model(releases, "0" * 64)
    made = [make(releases, SHA256) for _ in range(3)]
    for name in OLDER_LAYOUT:
        (releases.prefix / name).mkdir()
    for release in made:
        releases.switch(release)
    releases.prune()
    assert [release.is_dir() for release in made] == [False, True, True]
    assert (model.is_file(), other.exists()) == (True, False)
    names = {path.name for path in releases.prefix.iterdir()}
    assert names == {"releases", "models", CURRENT, PREVIOUS}


def test_two_do_not_change_it_at_once(releases):
    with releases.held():
        with pytest.raises(UntrustedError, match="is being changed already"):
            with releases.held():
                pytest.fail("both do")
    with releases.held():
        pass


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda release: (release / "bin" / "inferd").write_text("!"), "was changed"),
        (lambda release: (release / "bin" / "inferd").unlink(), "is missing"),
        (lambda release: (release / "bin" / "more").touch(), "is not of this version"),
    ],
)
def test_a_release_that_is_not_as_it_was_sealed_is_told(releases, change, said):
    release = make(releases)
    assert list(differences(release)) == []
    change(release)
    [difference] = differences(release)
    assert difference.endswith(said)


def test_models_are_part_of_it(releases):
    path = put_model(releases)
    release = make(releases, SHA256)
    assert list(differences(release)) == []
    path.write_bytes(b"others")
    assert list(differences(release)) == [f"{path} was changed"]
    path.unlink()
    assert list(differences(release)) == [f"the model {SHA256} is missing"]


def test_a_model_of_the_machine_s_store_may_be_removed_and_not_changed(
    releases, monkeypatch, tmp_path
):
    monkeypatch.setattr("tools.releases.STORE", tmp_path / "store")
    path = tmp_path / "store" / "blobs" / SHA256
    path.parent.mkdir(parents=True)
    path.write_bytes(MODEL)
    release = make(releases)
    (release / STORED_LISTED).write_text(f"{SHA256}\n")
    seal(release)
    assert list(differences(release)) == []
    path.write_bytes(b"others")
    assert list(differences(release)) == [f"{path} was changed"]
    path.unlink()
    assert list(differences(release)) == []


def test_sha256sum_reads_the_list(releases):
    release = make(releases)
    command = ["sha256sum", "--check", "--strict", "share/SHA256SUMS"]
    checked = subprocess.run(
        command, cwd=release, capture_output=True, text=True, check=True
    )
    assert checked.stdout == "bin/inferd: OK\nshare/models: OK\n"
