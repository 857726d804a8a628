import gc
import resource

import pytest

from inferd.worker import memory
from inferd.worker.memory import BoundedGrowth

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


def test_what_is_over_the_bound_cannot_be_had_and_what_is_under_it_can():
    growth = BoundedGrowth(256 * MIB)
    with growth:
        assert len(bytes(64 * MIB)) == 64 * MIB
        with pytest.raises(MemoryError):
            bytes(512 * MIB)


def test_many_small_things_are_bounded_as_one_large_thing_is():
    def grow():
        held: list[object] = []
        while True:
            held = [held, bytes(MIB)]

    with pytest.raises(MemoryError), BoundedGrowth(64 * MIB):
        grow()
    gc.collect()


@pytest.mark.parametrize("error", [None, ValueError, MemoryError])
def test_the_limit_is_what_it_was_whatever_happens(error):
    before = soft_limit()
    growth = BoundedGrowth(64 * MIB)
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
    with BoundedGrowth(2**41):
        assert soft_limit() == lower
    with BoundedGrowth(64 * MIB):
        assert soft_limit() < lower
    assert soft_limit() == lower
    resource.setrlimit(resource.RLIMIT_DATA, before)


def test_what_an_error_has_left_behind_is_taken_out(monkeypatch):
    sizes = iter([100 * MIB, 140 * MIB, 170 * MIB, 110 * MIB, 150 * MIB])
    collected = []
    monkeypatch.setattr(memory, "_data_bytes", lambda: next(sizes))
    monkeypatch.setattr(gc, "collect", lambda: collected.append(soft_limit()))
    growth = BoundedGrowth(100 * MIB)
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
    before = memory.resident_bytes()
    held = b"x" * (64 * MIB)
    assert 60 * MIB < memory.resident_bytes() - before < 80 * MIB
    assert held
