import gc
import resource

import pytest

from inferd.worker import process_memory
from inferd.worker.process_memory import GrowthLimit

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def kept_limit():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    yield
    after = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, before)
    assert after == before


def soft_limit():
    return resource.getrlimit(resource.RLIMIT_DATA)[0]


def test_allocations_over_the_limit_fail_and_others_succeed():
    growth = GrowthLimit(256 * MIB)
    with growth:
        assert len(bytes(64 * MIB)) == 64 * MIB
        with pytest.raises(MemoryError):
            bytes(512 * MIB)


def test_many_small_allocations_are_limited_like_a_large_one():
    def grow():
        held: list[object] = []
        while True:
            held = [held, bytes(MIB)]

    with pytest.raises(MemoryError), GrowthLimit(64 * MIB):
        grow()
    gc.collect()


@pytest.mark.parametrize("error", [None, ValueError, MemoryError])
def test_the_limit_is_what_it_was_whatever_happens(error):
    before = soft_limit()
    growth = GrowthLimit(64 * MIB)
    for _ in range(2):
        try:
            with growth:
                assert soft_limit() != before
                if error is not None:
                    raise error
        except (ValueError, MemoryError):
            pass
        assert soft_limit() == before


def test_a_limit_that_is_lower_stays():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    lower, hard = 2**40, before[1]
    resource.setrlimit(resource.RLIMIT_DATA, (lower, hard))
    with GrowthLimit(2**41):
        assert soft_limit() == lower
    with GrowthLimit(64 * MIB):
        assert soft_limit() < lower
    assert soft_limit() == lower
    resource.setrlimit(resource.RLIMIT_DATA, before)


def test_garbage_of_an_error_is_collected_first(monkeypatch):
    sizes = iter([100 * MIB, 140 * MIB, 170 * MIB, 110 * MIB, 150 * MIB])
    collected = []
    monkeypatch.setattr(process_memory, "_data_bytes", lambda: next(sizes))
    monkeypatch.setattr(gc, "collect", lambda: collected.append(soft_limit()))
    growth = GrowthLimit(100 * MIB)
    bounds = []
    for _ in range(3):
        monkeypatch.setattr(
            resource, "setrlimit", lambda _kind, limits: bounds.append(limits[0])
        )
        with growth:
            pass
    monkeypatch.undo()
    infinity = resource.RLIM_INFINITY
    assert collected == [infinity]
    assert bounds == [240 * MIB, infinity, 210 * MIB, infinity, 250 * MIB, infinity]


def test_what_a_process_takes_grows_with_what_it_has_made():
    before = process_memory.resident_bytes()
    held = b"x" * (64 * MIB)
    assert 60 * MIB < process_memory.resident_bytes() - before < 80 * MIB
    assert held
