import ctypes
from typing import Any

import pytest

from inferd.worker.backend import LoadError
from inferd.worker.llama import library

pytestmark = pytest.mark.model


@pytest.mark.parametrize("struct", ["llama_model_params", "llama_context_params"])
def test_the_librarys_structs_have_the_size_that_the_binding_believes(struct):
    function = struct.replace("_params", "_default_params")
    library.check_struct(struct, function)
    expected = ctypes.sizeof(getattr(library.llama, struct))
    assert library.struct_size(library._address(function)) == expected


@pytest.mark.parametrize("wrong_bytes", [-8, 8, 64])
def test_a_struct_of_another_size_is_refused(monkeypatch, wrong_bytes):
    true_bytes = ctypes.sizeof(library.llama.llama_context_params)

    fields = [("data", ctypes.c_uint8 * (true_bytes + wrong_bytes))]
    other = type("Other", (ctypes.Structure,), {"_fields_": fields})
    monkeypatch.setattr(library.llama, "llama_context_params", other)
    with pytest.raises(LoadError, match=f"{true_bytes} bytes.*make setup"):
        library.check_struct("llama_context_params", "llama_context_default_params")


def test_loading_tells_version_and_features():
    variant, text = library.load_library()
    assert text.startswith(f"llama-cpp-python 0.3.36 ({variant}")
    assert library.features()


def test_what_is_loaded_is_told_if_there_is_a_choice():
    told: list[Any] = []
    variant = library.load_library(told.append).cpu_variant
    assert [each.name for each in told] == ([variant] if variant else [])


def test_a_variant_that_is_not_there_is_refused():
    with pytest.raises(LoadError, match=r'cpu_variant = "z80": this build .* has '):
        library.load_library(wanted="z80")


def test_no_amx_without_asking_for_it():
    library.load_library()
    assert "AMX_INT8" not in library.features()


def test_the_flag_for_an_interruption_is_what_strlen_makes_of_it():
    flag = (ctypes.c_char * 2)()
    assert ctypes.CDLL(None).strlen(flag) == 0
    flag[0] = b"\x01"
    assert ctypes.CDLL(None).strlen(flag) == 1
