"""The wheel that is built once, and checked before each use."""

import hashlib
import sys
from pathlib import Path

import pytest

from inferd.trusted_path import UntrustedError
from tools import wheel
from tools.packages import pinned, pinned_block

NAME = "llama_cpp_python-1-py3-none-any.whl"
CONTENT = b"PK and code"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a wheel that was built; building another is a failure."""
    tmp_path.chmod(0o755)
    monkeypatch.setenv("INFERD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(wheel, "build", lambda *_: pytest.fail("built again"))
    version = pinned(wheel.PACKAGE)
    name = f"{wheel.PACKAGE}-{version}-{wheel.key(version)}"
    directory = tmp_path / "wheels" / name
    directory.mkdir(parents=True, mode=0o755)
    (directory / NAME).write_bytes(CONTENT)
    digest = hashlib.sha256(CONTENT).hexdigest()
    (directory / wheel.RECORD).write_text(f"{digest}  {NAME}\n")
    return directory


def find() -> wheel.Wheel:
    return wheel.llama_wheel(Path(sys.executable))


def test_a_wheel_that_is_as_it_was_built_is_used(kept):
    assert find() == wheel.Wheel(kept / NAME, hashlib.sha256(CONTENT).hexdigest())


@pytest.mark.parametrize("at", range(len(CONTENT)))
def test_a_wheel_with_a_byte_changed_is_refused(kept, capsys, at):
    changed = bytearray(CONTENT)
    changed[at] ^= 1
    (kept / NAME).write_bytes(changed)
    with pytest.raises(SystemExit, match="2"):
        find()
    said = capsys.readouterr().err
    assert f"SHA-256 of {kept / NAME} is {hashlib.sha256(changed).hexdigest()}" in said
    assert f"remove {kept} to have it built again" in said


@pytest.mark.parametrize("lost", [NAME, wheel.RECORD])
def test_a_wheel_without_its_digest_or_the_other_way_round_is_refused(
    kept, capsys, lost
):
    (kept / lost).unlink()
    with pytest.raises(SystemExit, match="2"):
        find()
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize("name", [NAME, wheel.RECORD])
def test_a_link_is_no_wheel_and_no_record(kept, name):
    (kept / name).rename(kept / "elsewhere")
    (kept / name).symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        wheel.checked(kept)


def test_a_record_leads_to_no_other_directory(kept):
    (kept / wheel.RECORD).write_text(f"{'0' * 64}  ../../{NAME}\n")
    with pytest.raises(UntrustedError, match="SHA-256"):
        wheel.checked(kept)


@pytest.mark.parametrize("mode", [0o757, 0o777])
def test_a_cache_that_others_may_write_to_is_refused_with_the_way_out(
    kept, capsys, mode
):
    kept.parent.chmod(mode)
    with pytest.raises(SystemExit, match="2"):
        find()
    assert f"chmod go-w {kept.parent}" in capsys.readouterr().err


def test_another_release_or_another_tool_to_build_with_is_another_build(monkeypatch):
    keys = {wheel.key("1"), wheel.key("2")}
    for package in wheel.BUILT_WITH:
        monkeypatch.setattr(
            wheel,
            "pinned_block",
            lambda name, package=package: pinned_block(name) + "#" * (name == package),
        )
        keys.add(wheel.key("1"))
    assert len(keys) == 2 + len(wheel.BUILT_WITH)


def test_what_is_built_is_there_with_its_digest_or_not_at_all(tmp_path, monkeypatch):
    tmp_path.chmod(0o755)
    monkeypatch.setattr(wheel, "download_source", lambda *_: tmp_path / "archive")
    directory = tmp_path / "built"

    def fail(*_):
        raise SystemExit(2)

    monkeypatch.setattr(wheel, "compile_archive", fail)
    with pytest.raises(SystemExit):
        wheel.build(Path(sys.executable), directory)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(
        wheel,
        "compile_archive",
        lambda _python, _archive, target, _directory: (target / NAME).write_bytes(
            CONTENT
        ),
    )
    wheel.build(Path(sys.executable), directory)
    assert wheel.checked(directory).path == directory / NAME
    assert [path.name for path in tmp_path.iterdir()] == ["built"]
