import ctypes

from inferd.sandbox.privileges import drop_capabilities
from tests.fakes.libc import NoLibrary


class FakeLibrary:
    """Has all capabilities of a root, and takes those that are left."""

    left: tuple[int, ...] = ()

    @staticmethod
    def capget(_header: object, sets: ctypes.Array[ctypes.c_uint32]) -> int:
        sets[:] = [0xFFFF_FFFF] * 6
        return 0

    @classmethod
    def capset(cls, _header: object, sets: ctypes.Array[ctypes.c_uint32]) -> int:
        cls.left = tuple(sets)
        return 0


def test_a_kernel_that_does_not_tell_capabilities_is_not_asked_to_change_them(
    monkeypatch,
):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: NoLibrary)
    drop_capabilities()


def test_none_is_kept_but_those_that_are_named(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: FakeLibrary)
    drop_capabilities()
    assert FakeLibrary.left == (0, 0, 0, 0, 0, 0)
    drop_capabilities(kept=0b100)
    assert FakeLibrary.left == (0b100, 0b100, 0, 0, 0, 0)
