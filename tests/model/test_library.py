import ctypes
from collections.abc import Callable

import pytest

from inferd.worker.backend import LoadError
from inferd.worker.llama.library.binding import (
    check_struct,
    llama,
    load_library,
    struct_size,
)

pytestmark = pytest.mark.model

STRUCTS = [
    ("llama_model_params", "llama_model_default_params"),
    ("llama_context_params", "llama_context_default_params"),
]

Writer = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def address_of(function) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def writer_of(data: bytes) -> Callable[[int], None]:
    return Writer(lambda room: ctypes.memmove(room, data, len(data)) and None)


@pytest.mark.parametrize(("name", "make_default"), STRUCTS)
def test_the_library_writes_structs_of_the_size_that_the_binding_has(
    name, make_default
):
    size = ctypes.sizeof(getattr(llama, name))
    assert struct_size(address_of(getattr(llama, make_default))) == size
    check_struct(name, make_default)


@pytest.mark.parametrize("n_bytes", [8, 72, 136])
@pytest.mark.parametrize("byte", [0x00, 0x55, 0xAA, 0xFF])
def test_a_size_is_found_whatever_the_last_field_holds(n_bytes, byte):
    writer = writer_of(bytes([byte]) * n_bytes)
    assert struct_size(address_of(writer)) == n_bytes


def test_padding_after_the_last_field_counts():
    writer = writer_of(b"\x01" * 65)
    assert struct_size(address_of(writer)) == 72


@pytest.mark.parametrize(("name", "make_default"), STRUCTS)
def test_a_binding_with_a_field_more_than_the_library_is_refused(
    monkeypatch: pytest.MonkeyPatch, name, make_default
):
    class Grown(getattr(llama, name)):  # type: ignore[misc]
        _fields_ = [("news", ctypes.c_void_p)]  # noqa: RUF012  # ctypes asks for a list

    size = ctypes.sizeof(getattr(llama, name))
    monkeypatch.setattr(llama, name, Grown)
    with pytest.raises(LoadError, match=rf"{name} has {size} .* expects {size + 8}"):
        load_library()


def test_a_library_with_a_field_more_than_the_binding_is_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    class Shrunk(ctypes.Structure):
        _fields_ = llama.llama_context_params._fields_[:-1]

    monkeypatch.setattr(llama, "llama_context_params", Shrunk)
    with pytest.raises(LoadError, match="from different releases; run: make setup"):
        load_library()
