import ctypes

from inferd.worker.native.struct_size import written_bytes
from tests.cases import each_case


def address_of(function) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


@each_case("n_bytes", [0, 8, 65, 136])
@each_case("byte", [0x00, 0x55, 0xAA, 0xFF])
def test_the_last_byte_that_is_written_is_found_whatever_it_holds(n_bytes, byte):
    data = bytes([byte]) * n_bytes

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def write(buffer):
        ctypes.memmove(buffer, data, n_bytes)

    assert written_bytes(address_of(write)) == n_bytes


def test_arguments_are_passed_on():
    passed = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    def write(_buffer, first, second):
        passed.append((first, second))

    assert written_bytes(address_of(write), 3, 4) == 0
    assert passed == [(3, 4)] * 2
