import ctypes
from types import SimpleNamespace

import pytest

from inferd.worker.backend import LoadError
from inferd.worker.llama.memory import breakdown as module
from inferd.worker.llama.memory.breakdown import breakdown
from inferd.worker.llama.model.context import LlamaContext
from tests.model.tiny import KV_HEADS, LAYERS

pytestmark = pytest.mark.model

HEAD = 16
F16_BYTES = 2


@pytest.fixture
def model(loaded):
    return loaded._model


@pytest.fixture
def context(model):
    made = LlamaContext.for_generation(model, n_tokens=512, n_slots=2, n_threads=1)
    yield made.handle
    made.close()


def test_a_breakdown_sorts_memory_by_its_use(context, model):
    found = breakdown(context, model.n_bytes)
    assert 0 <= found.mapped - model.n_bytes < 1000
    assert found.cache == 512 * LAYERS * 2 * KV_HEADS * HEAD * F16_BYTES
    assert found.compute > 0
    assert (found.repacked, found.accelerator) == (0, {})


@pytest.mark.parametrize("factor", [0.5, 2])
def test_accounts_that_do_not_add_up_are_refused(context, model, factor):
    with pytest.raises(LoadError, match=r"not that of the pinned release.*make setup"):
        breakdown(context, int(model.n_bytes * factor))


def test_a_library_without_accounts_is_refused(monkeypatch):
    without = SimpleNamespace(_lib=ctypes.CDLL(None))
    monkeypatch.setattr(module, "llama", without)
    with pytest.raises(LoadError, match="pinned release"):
        breakdown(ctypes.c_void_p(), 1)


def test_repacked_and_accelerator_buffers_are_distinguished(monkeypatch):
    plain, packed, card = 1, 2, 3
    monkeypatch.setattr(module, "_is_plain", lambda kind: kind == plain)
    monkeypatch.setattr(module, "_device_of", lambda kind: 10 * kind)
    monkeypatch.setattr(module, "is_cpu", lambda device: device == 10 * packed)
    nodes = [
        module._Node(kind, 10 * kind, 100 * kind, 1000 * kind)
        for kind in (plain, packed, card)
    ]
    found = module._sorted(nodes)
    assert (found.mapped, found.repacked) == (10, 20)
    assert (found.cache, found.compute) == (100 + 200, 1000 + 2000)
    assert found.accelerator == {10 * card: 3330}
