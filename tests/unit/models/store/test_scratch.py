import itertools
import os
import stat
import tempfile
import time

import pytest

from inferd.models.store.directory import StoreError, try_lock
from inferd.models.store.scratch import idle_scratch, scratch_directory
from inferd.trusted_path import DIRECTORY
from tests.unit.models.store.stores import open_store


@pytest.fixture
def directory(tmp_path):
    with open_store(tmp_path / "models").directory as directory:
        yield directory


@pytest.fixture
def looked_at(monkeypatch):
    """Another command that has the new directory locked, as one that lists what is unused."""
    held = []
    make = tempfile.mkdtemp

    def made(**options):
        path = make(**options)
        held.append(os.open(path, DIRECTORY))
        assert try_lock(held[0])
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", made)
    yield held
    while held:
        os.close(held.pop())


def test_a_directory_is_its_command_s_although_another_looked_at_it(
    directory, looked_at, monkeypatch
):
    monkeypatch.setattr(time, "sleep", lambda _: os.close(looked_at.pop()))
    with scratch_directory(directory) as path:
        assert looked_at == []
        assert idle_scratch(directory) == []
        assert stat.S_IMODE(path.stat().st_mode) == 0o700  # ADR 0082 relies on it
    assert not path.exists()


@pytest.mark.usefixtures("looked_at")
def test_a_directory_that_another_does_not_let_go_is_not_used(directory, monkeypatch):
    clock = itertools.count(step=10.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with (
        pytest.raises(StoreError, match="another process has had .* for 30 s"),
        scratch_directory(directory),
    ):
        pytest.fail("used")
    assert [*directory.path.glob(".scratch-*")] == []
