import ctypes
from typing import Any

import pytest

from inferd.worker.backend import LoadError
from inferd.worker.llama.library import binding

pytestmark = pytest.mark.model


@pytest.mark.parametrize("struct", ["llama_model_params", "llama_context_params"])
def test_the_librarys_structs_have_the_size_that_the_binding_believes(struct):
    function = struct.replace("_params", "_default_params")
    binding.check_struct(struct, function)
    expected = ctypes.sizeof(getattr(binding.llama, struct))
    assert binding.struct_size(binding._address(function)) == expected


@pytest.mark.parametrize("wrong_bytes", [-8, 8, 64])
def test_a_struct_of_another_size_is_refused(monkeypatch, wrong_bytes):
    true_bytes = ctypes.sizeof(binding.llama.llama_context_params)

    fields = [("data", ctypes.c_uint8 * (true_bytes + wrong_bytes))]
    other = type("Other", (ctypes.Structure,), {"_fields_": fields})
    monkeypatch.setattr(binding.llama, "llama_context_params", other)
    with pytest.raises(LoadError, match=f"{true_bytes} bytes.*make setup"):
        binding.check_struct("llama_context_params", "llama_context_default_params")


def test_loading_tells_version_and_features():
    variant, text = binding.load_library()
    assert text.startswith(f"llama-cpp-python 0.3.36 ({variant}")
    assert binding.cpu_features()


def test_the_variant_is_reported_if_there_are_several():
    told: list[Any] = []
    variant = binding.load_library(told.append).cpu_variant
    chosen = [each.name for each in told if not each.is_asked]
    assert chosen == ([variant] if variant else [])


def test_a_variant_that_is_not_there_is_refused():
    with pytest.raises(LoadError, match=r'cpu_variant = "z80": this build .* has '):
        binding.load_library(wanted="z80")


def test_no_amx_without_asking_for_it():
    binding.load_library()
    assert "AMX_INT8" not in binding.cpu_features()


def test_the_flag_for_an_interruption_is_what_strlen_makes_of_it():
    flag = (ctypes.c_char * 2)()
    assert ctypes.CDLL(None).strlen(flag) == 0
    flag[0] = b"\x01"
    assert ctypes.CDLL(None).strlen(flag) == 1
