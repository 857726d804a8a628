import ctypes
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from inferd.backend.capabilities import AcceleratorKind
from inferd.limits.accelerator import MAX_DEVICES
from inferd.worker.llama.library import devices as module
from inferd.worker.llama.library.binding import load_library
from inferd.worker.llama.library.devices import (
    NO_LIMIT,
    kind_of,
    largest_tensor_bytes,
    list_devices,
)

pytestmark = pytest.mark.model
CPU, GPU, INTEGRATED, HELPER = range(4)


class Found(NamedTuple):
    kind: int
    registry: bytes = b"Vulkan"
    name: bytes = b"Vulkan0"
    description: bytes = b"Some card"


class FakeGgml:
    """The functions of ggml that describe devices; handles count from 1."""

    def __init__(self, *devices):
        def memory(_handle, free, total):
            free._obj.value, total._obj.value = 5, 9

        answers = {
            "dev_count": lambda: len(devices),
            "dev_get": lambda index: index + 1,
            "dev_type": lambda handle: devices[handle - 1].kind,
            "dev_backend_reg": lambda handle: handle,
            "reg_name": lambda handle: devices[handle - 1].registry,
            "dev_name": lambda handle: devices[handle - 1].name,
            "dev_description": lambda handle: devices[handle - 1].description,
            "dev_memory": memory,
        }
        for name, answer in answers.items():
            setattr(self, f"ggml_backend_{name}", answer)


@pytest.fixture
def listed(monkeypatch):
    def made(*devices):
        fake = SimpleNamespace(_lib=FakeGgml(*devices))
        monkeypatch.setattr(module, "llama", fake)
        return list_devices()

    return made


def test_cards_are_listed_with_name_and_memory(listed):
    [card] = listed(Found(CPU), Found(GPU), Found(HELPER, b"BLAS"))
    assert card == (2, AcceleratorKind.VULKAN, "Vulkan0", "Some card", 9, 5)
    assert kind_of([card]) is AcceleratorKind.VULKAN


@pytest.mark.parametrize(
    ("registry", "kind"),
    [
        (b"CUDA", AcceleratorKind.CUDA),
        (b"ROCm", AcceleratorKind.ROCM),
        (b"MTL", AcceleratorKind.METAL),
    ],
)
def test_the_kind_is_that_of_ggmls_backend(listed, registry, kind):
    assert kind_of(listed(Found(INTEGRATED, registry))) is kind


def test_devices_of_another_kind_are_left_out(listed):
    assert listed(Found(GPU, b"Quantum")) == []
    assert kind_of([]) is AcceleratorKind.CPU


def test_only_as_many_are_listed_as_llama_cpp_uses(listed):
    assert len(listed(*(MAX_DEVICES + 1) * [Found(GPU)])) == MAX_DEVICES


def test_a_name_that_is_no_text_is_listed(listed):
    assert listed(Found(GPU, description=b"\xff"))[0].description == "\ufffd"


def test_the_functions_are_in_the_real_library():
    assert kind_of(list_devices()) in AcceleratorKind


@pytest.mark.parametrize("limit", [1, 128 << 20, 2**32 - 1, NO_LIMIT - 1])
def test_the_largest_tensor_is_found_from_what_a_device_says_of_each(
    monkeypatch, limit
):
    monkeypatch.setattr(module, "_supports_tensor", lambda _, n_bytes: n_bytes <= limit)
    assert largest_tensor_bytes(1) == limit


@pytest.mark.parametrize("answer", [True, False])
def test_a_device_that_says_the_same_of_all_tensors_has_no_limit(monkeypatch, answer):
    monkeypatch.setattr(module, "_supports_tensor", lambda *_: answer)
    assert largest_tensor_bytes(1) == NO_LIMIT


def test_the_processor_computes_with_a_tensor_of_any_size():
    load_library()
    first = module._function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    assert largest_tensor_bytes(first(0)) == NO_LIMIT
