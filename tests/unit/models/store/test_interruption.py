"""A store after its process was ended at any step: old or new, and never in between."""

import os
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
"""Stores that are made; a change takes fewer steps."""


def end_at(step: int) -> None:
    """End this process at a call that may change the file system, before or after it."""
    n_calls = 0

    def ending(real, *args, **options):
        nonlocal n_calls
        n_calls += 1
        if n_calls == step:
            os._exit(EXIT_AT_STEP)
        return real(*args, **options)

    for name in CHANGES:
        real = getattr(os, name)
        setattr(os, name, wraps(real)(partial(ending, real)))


def interrupted(change):
    """Have a process make a change, and end at each step in turn; give the steps.

    The last process makes the whole change.
    """
    for step in range(1, MAX_STEPS):
        if (process := os.fork()) == 0:
            try:
                end_at(step)
                change(step)
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in {0, EXIT_AT_STEP}
        yield step
        if code == 0:
            return
    pytest.fail("the change takes more steps")


@pytest.mark.slow
def test_a_model_is_the_old_or_the_new_one(tmp_path):
    def replace(step):
        add_model(open_store(tmp_path / str(step)), "a", NEW, OTHER)

    for step in range(1, MAX_STEPS):
        add_model(open_store(tmp_path / str(step)), "a", OLD, OTHER)
    seen = set()
    for step in interrupted(replace):
        store = open_store(tmp_path / str(step))
        assert_whole(store)
        seen.add(store.model("a").files[0].n_bytes)
        store.prune()
        assert_whole(store)
        assert store.directory.names(PARTIAL) == []
        assert len(store.directory.names(BLOBS)) == 2
    assert seen == {len(OLD), len(NEW)}


@pytest.mark.slow
def test_a_model_is_there_or_removed(tmp_path):
    for step in range(1, MAX_STEPS):
        store = open_store(tmp_path / str(step))
        add_model(store, "a", OLD, OTHER)
        add_model(store, "b", OTHER)
    seen = set()
    for step in interrupted(lambda step: open_store(tmp_path / str(step)).remove("a")):
        store = open_store(tmp_path / str(step))
        assert_whole(store)
        assert "b" in store.names()
        seen.add("a" in store.names())
    assert seen == {True, False}
