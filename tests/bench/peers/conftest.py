import pytest

from bench.peers import build


@pytest.fixture
def built(monkeypatch, tmp_path):
    """A cache, and the directories in it that were asked to be filled."""
    asked = []

    def fill(_, directory):
        (directory / "bin").mkdir(parents=True)
        asked.append(directory)

    monkeypatch.setattr(build, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(build, "build", fill)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/cmake")
    return asked
