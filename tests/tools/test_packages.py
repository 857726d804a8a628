"""What pip installs: the files whose digests are written down, and no others."""

import hashlib
import re
import sys
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from tests.cases import each_case
from tools import hashes, packages
from tools.packages import blocks, normal

ROOT = Path(__file__).parents[2]
PINS = blocks(packages.CONSTRAINTS.read_text())
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{more}"
PYTHON = Path(sys.executable)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of two packages, one of which needs the other; nothing else is asked."""
    make(tmp_path, "inner", "")
    make(tmp_path, "outer", "Requires-Dist: inner\n")
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(tmp_path))):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "installed"))
    return tmp_path


def make(directory: Path, name: str, more: str) -> None:
    with zipfile.ZipFile(directory / f"{name}-1-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{name}-1.dist-info/METADATA", METADATA.format_map(locals()))
        archive.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr(f"{name}-1.dist-info/RECORD", "")


def constrain(directory: Path, monkeypatch: pytest.MonkeyPatch, **digests: str) -> None:
    """Have other constraints in force; ``right`` stands for the right digest."""
    lines = []
    for name, digest in digests.items():
        file = next(directory.glob(f"{name}-1-*.whl"))
        right = hashlib.sha256(file.read_bytes()).hexdigest()
        lines.append(
            hashes.entry(f"{name}==1", [right if digest == "right" else digest])
        )
    path = directory / "constraints.txt"
    path.write_text("".join(lines))
    options = ("--require-hashes", "--constraint", str(path))
    monkeypatch.setattr(packages, "CHECKED", options)


@pytest.mark.slow
def test_what_has_its_digest_is_installed_with_what_it_needs(registry, monkeypatch):
    constrain(registry, monkeypatch, inner="right", outer="right")
    packages.install(PYTHON, "outer")
    installed = {path.name for path in (registry / "installed").glob("*.py")}
    assert installed == {"inner.py", "outer.py"}


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["inner", "outer"])
def test_another_digest_ends_it(registry, monkeypatch, capsys, changed):
    digests = {"inner": "right", "outer": "right", changed: "0" * 64}
    constrain(registry, monkeypatch, **digests)
    with pytest.raises(SystemExit, match="2"):
        packages.install(PYTHON, "outer")
    assert "DO NOT MATCH THE HASHES" in capsys.readouterr().err
    assert not (registry / "installed").exists()


@pytest.mark.slow
def test_what_is_needed_and_has_no_digest_ends_it(registry, monkeypatch, capsys):
    constrain(registry, monkeypatch, outer="right")
    with pytest.raises(SystemExit, match="2"):
        packages.install(PYTHON, "outer")
    assert "inner" in capsys.readouterr().err
    assert not (registry / "installed").exists()


@pytest.mark.slow
def test_a_file_that_was_built_here_is_installed_by_its_digest(registry, capsys):
    [file] = registry.glob("inner*.whl")
    right = hashlib.sha256(file.read_bytes()).hexdigest()
    packages.install_file(PYTHON, "inner", file, right)
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(SystemExit, match="2"):
        packages.install_file(PYTHON, "inner", file, right)
    assert "DO NOT MATCH THE HASHES" in capsys.readouterr().err


# --- constraints.txt ------------------------------------------------------------------


@each_case("package", sorted(PINS))
def test_each_version_is_exact_and_has_digests(package):
    pin, *digests = PINS[package].replace("\\\n", "\n").split()
    assert re.fullmatch(r"[\w.-]+==[\w.]+", pin)
    assert digests
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in digests)
    assert digests == sorted(set(digests))


def test_it_names_all_that_is_asked_for_by_name():
    asked = packages.wanted(
        "llama", "whisper", "media", "models", "bridge", "fuzz", "dev"
    )
    names = {normal(re.split("[<>=]", each)[0]) for each in asked}
    needed = {"pip", "hatchling", "editables", *hashes.SOURCES}
    assert names | needed <= PINS.keys()


def test_no_file_of_ours_installs_anything_without_digests():
    """Other ways to call pip than by `tools.packages` are listed here."""
    callers = {
        path.relative_to(ROOT).as_posix()
        for folder in ("inferd", "tools", "bench", "fuzz", "torture")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r'"pip"', path.read_text())
    }
    assert callers == {
        "tools/packages.py",
        # one names it as a package, the other installs it from the archive with that
        "tools/accelerator_trial/archive.py",
        "tools/accelerator_trial/build.py",
        "inferd/models/packages/pip_texts.py",
        "inferd/models/packages/programs.py",
    }


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "fuzz/README.md"])
def test_commands_of_documents_install_with_digests(name):
    text = (ROOT / name).read_text()
    for command in re.findall(r"pip install (?!')[^`\n]*", text):
        assert "--constraint constraints.txt" in command


# --- tools.hashes ---------------------------------------------------------------------


@pytest.fixture
def registry_answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """A registry with a wheel for each target; gives what it was asked."""
    asked = []

    def wheels_of(pins: list[str], *target: object) -> hashes.Files:
        asked.append(target)
        digest = f"{len(asked) % 3:064x}"
        return {hashes.package_of(pin): {digest} for pin in pins}

    monkeypatch.setattr(hashes, "wheels_of", wheels_of)
    monkeypatch.setattr(
        hashes,
        "sources",
        lambda pins, _: [
            {hashes.package_of(pin): {"f" * 64}} for pin in pins if "llama" in pin
        ],
    )
    return asked


def test_digests_are_written_for_the_versions_that_are_there(registry_answers):
    text = hashes.constraints("b==2\n# a comment\nA==1 \\\n    --hash=sha256:old\n")
    assert text.startswith("# Versions")
    assert [block.split()[0] for block in blocks(text).values()] == ["A==1", "b==2"]
    assert "old" not in text
    assert blocks(text)["a"].count("--hash") == 3
    assert len(registry_answers) == len(hashes.TARGETS) == 16
    assert hashes.constraints(text) == text


def test_of_some_packages_the_sources_alone_are_used(registry_answers):
    text = hashes.constraints("llama-cpp-python==4\nA==1\n")
    assert blocks(text)["llama-cpp-python"].split()[2:] == [f"--hash=sha256:{'f' * 64}"]


def test_a_package_that_is_broken_missing_or_another_is_described(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(packages, "pinned", lambda _: "1")
    site = tmp_path / "site"
    info = site / "outer-1.dist-info"
    info.mkdir(parents=True)
    (site / "outer.so").write_bytes(b"native")
    digest = urlsafe_b64encode(hashlib.sha256(b"native").digest()).decode().rstrip("=")
    (info / "METADATA").write_text(METADATA.format(name="outer", more=""))
    (info / "RECORD").write_text(
        f"outer.so,sha256={digest},6\nouter-1.dist-info/RECORD,,\n"
    )
    assert not packages.damage(site, ["outer"], hashed=["outer"])
    (site / "outer.so").write_bytes(b"natixe")
    assert not packages.damage(site, ["outer"])
    for change in (lambda: None, (site / "outer.so").unlink):
        change()
        found = packages.damage(site, ["outer"], hashed=["outer"])
        assert found == "outer.so is not as it was installed"
    monkeypatch.setattr(packages, "pinned", lambda _: "2")
    assert packages.damage(site, ["outer"]) == "outer 2 is not installed"
    assert packages.damage(tmp_path, ["outer"]) == "outer 2 is not installed"
