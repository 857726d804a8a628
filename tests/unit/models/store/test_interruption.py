"""A store after its process was ended at any step: old or new, and never in between."""

import gc
import os
import shutil
from functools import partial, wraps

import pytest

from inferd.models.store.directory import BLOBS, PARTIAL
from tests.unit.models.store.stores import add_model, assert_whole, open_store

CHANGES = (
    *("open", "write", "fsync", "rename", "unlink", "link", "ftruncate", "mkdir"),
    "close",
)
EXIT_AT_STEP = 9
OLD, NEW, OTHER = b"old" * 500, b"new" * 600, b"other" * 100
MAX_STEPS = 60
"""Copies of the store, at most; a change takes fewer steps."""


def end_at(step: int) -> None:
    """End this process right after a call that may change the file system."""
    gc.disable()  # what other tests have left has no step here
    n_calls = 0

    def ending(real, *args, **options):
        nonlocal n_calls
        n_calls += 1
        try:
            return real(*args, **options)
        finally:
            if n_calls == step:
                os._exit(EXIT_AT_STEP)

    for name in CHANGES:
        real = getattr(os, name)
        setattr(os, name, wraps(real)(partial(ending, real)))


def interrupted(path, change):
    """Have processes make a change to a copy of a store, and end at each step in turn.

    The last process makes the whole change. Gives the store that each has left.
    """
    for step in range(1, MAX_STEPS):
        copy = path.with_name(str(step))
        shutil.copytree(path, copy)
        if (process := os.fork()) == 0:
            try:
                end_at(step)
                change(open_store(copy))
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in {0, EXIT_AT_STEP}
        yield open_store(copy)
        if code == 0:
            return
    pytest.fail("the change takes more steps")


@pytest.mark.long
@pytest.mark.slow
def test_a_model_is_the_old_or_the_new_one(tmp_path):
    path = tmp_path / "before"
    add_model(open_store(path), "a", OLD, OTHER)
    seen = set()
    for store in interrupted(path, lambda store: add_model(store, "a", NEW, OTHER)):
        assert_whole(store)
        seen.add(store.model("a").files[0].n_bytes)
        store.prune()
        assert_whole(store)
        assert store.directory.names(PARTIAL) == []
        assert len(store.directory.names(BLOBS)) == 2
    assert seen == {len(OLD), len(NEW)}


@pytest.mark.long
@pytest.mark.slow
def test_a_model_is_there_or_removed(tmp_path):
    path = tmp_path / "before"
    before = open_store(path)
    add_model(before, "a", OLD, OTHER)
    add_model(before, "b", OTHER)
    seen = set()
    for store in interrupted(path, lambda store: store.remove("a")):
        assert_whole(store)
        assert "b" in store.names()
        seen.add("a" in store.names())
    assert seen == {True, False}
