from typing import cast

import pytest

from inferd.backend.capabilities import AcceleratorKind
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.limits.accelerator import DEVICE_RESERVE_BYTES
from inferd.memory.plan import MemoryDemand
from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import ModelFiles
from inferd.worker.llama.library.devices import NO_LIMIT, Device
from inferd.worker.llama.memory import placement
from inferd.worker.llama.memory.placement import place_layers
from inferd.worker.llama.memory.predict import Layers, Prediction

N_LAYERS = 10
N_CTX = 1 << 20
ROW_BYTES = 512
TENSOR_BYTES = 2 * N_CTX * ROW_BYTES
LAYER_BYTES = 100 << 20


@pytest.fixture
def place(monkeypatch):
    """Place the layers of a model of which each takes 100 MiB, on one device."""

    def predict(_files, settings, _n_slots, _alive):
        n_bytes = settings.n_gpu_layers * LAYER_BYTES
        demand = MemoryDemand(
            n_ctx=8, is_set=False, has_slots=True, weights=0, own=0, accelerator=n_bytes
        )
        return Prediction(demand, {1: n_bytes} if n_bytes else {})

    def made(*free_mb, **settings):
        devices = [
            Device(1 + at, AcceleratorKind.CUDA, f"CUDA{at}", f"Card {at}", 1, mb << 20)
            for at, mb in enumerate(free_mb)
        ]
        monkeypatch.setattr(placement, "list_devices", lambda: devices)
        monkeypatch.setattr(placement, "predict", predict)
        monkeypatch.setattr(
            placement,
            "measure_layers",
            lambda *_: Layers(N_LAYERS, N_CTX, n_slots=2, row_bytes=ROW_BYTES),
        )
        limit = settings.pop("largest_tensor", NO_LIMIT)
        monkeypatch.setattr(placement, "largest_tensor_bytes", lambda _: limit)
        files = cast("ModelFiles", None)
        wanted = LlamaCppSettings(name="c", **settings)
        return place_layers(files, wanted, 1, lambda: None)

    return made


RESERVE_MB = DEVICE_RESERVE_BYTES >> 20


@pytest.mark.parametrize(
    ("free_mb", "n_layers"), [(RESERVE_MB + 350, 3), (RESERVE_MB + 50, 0), (5000, 10)]
)
def test_auto_puts_there_what_fits(place, free_mb, n_layers):
    placed = place(free_mb, n_gpu_layers="auto")
    assert placed.settings.n_gpu_layers == n_layers
    assert placed.demand.accelerator == n_layers * LAYER_BYTES


def test_auto_uses_the_processor_where_there_is_no_device(place):
    assert place(n_gpu_layers="auto").settings.n_gpu_layers == 0


@pytest.mark.parametrize(
    ("wanted", "n_layers"), [("all", 10), (-1, 10), (99, 10), (4, 4), (0, 0)]
)
def test_a_number_means_that_many_of_the_models_layers(place, wanted, n_layers):
    assert place(5000, n_gpu_layers=wanted).settings.n_gpu_layers == n_layers


def test_a_number_that_does_not_fit_is_refused_with_the_one_that_would(place):
    with pytest.raises(
        LoadError, match="7 layers do not fit: .* 650 MiB free, 700 needed; 1 would"
    ):
        place(650, n_gpu_layers=7)


def test_a_cache_that_no_driver_computes_with_is_refused_with_the_numbers(place):
    with pytest.raises(
        LoadError,
        match=r"= all: n_ctx = 1048576 with 2 requests at once needs a tensor of 1024 MiB"
        r" .* CUDA0 computes with 1023 MiB at most; n_ctx = 1048575 would do",
    ):
        place(5000, n_gpu_layers="all", largest_tensor=TENSOR_BYTES - 1)


def test_auto_and_a_single_layer_leave_such_a_cache_in_main_memory(place):
    too_small = TENSOR_BYTES - 1
    for wanted in ("auto", 1):
        placed = place(5000, n_gpu_layers=wanted, largest_tensor=too_small)
        assert placed.settings.n_gpu_layers == 1


def test_a_cache_of_just_the_largest_tensor_is_placed(place):
    placed = place(5000, n_gpu_layers="all", largest_tensor=TENSOR_BYTES)
    assert placed.settings.n_gpu_layers == N_LAYERS


def test_a_number_may_use_the_reserve(place):
    assert place(650, n_gpu_layers=6).settings.n_gpu_layers == 6


def test_a_required_accelerator_that_is_full_is_refused(place):
    with pytest.raises(LoadError, match="require_accelerator: no layer fits"):
        place(50, n_gpu_layers="auto", require_accelerator=True)


def test_the_only_device_to_use_may_be_named(place):
    assert place(10, 5000, n_gpu_layers="auto", main_gpu=0).settings.n_gpu_layers == 0
    with pytest.raises(LoadError, match=r"main_gpu = 2: .* 0 \(Card 0\), 1 \(Card 1\)"):
        place(10, 5000, n_gpu_layers="auto", main_gpu=2)


def test_only_the_number_of_layers_is_decided(place):
    placed = place(5000, n_gpu_layers="all", tensor_split=(1.0,))
    wanted = LlamaCppSettings(name="c", n_gpu_layers=N_LAYERS, tensor_split=(1.0,))
    assert placed.settings == wanted
