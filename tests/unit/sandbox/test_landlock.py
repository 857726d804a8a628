import ctypes
import errno
import os
import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest

from inferd.sandbox import landlock

PROGRAM = """
import os, sys
from inferd.sandbox.landlock import READ_DIR, READ_FILE, restrict
import ctypes
import errno
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
allowed = os.open(sys.argv[1], os.O_PATH)
restrict([(allowed, READ_FILE | READ_DIR)])
for path in sys.argv[1:]:
    try:
        print(len(os.listdir(path)))
    except PermissionError:
        print("no")
"""


class FakeKernel:
    """Takes system calls, and is of one version."""

    def __init__(self, version: int, refused: int = 0) -> None:
        self.version = version
        self.refused = refused
        self.rights: tuple[int, int, int] = (0, 0, 0)
        self.calls: list[int] = []

    def __call__(self, number: int, *arguments: object) -> int:
        self.calls.append(number)
        if number == self.refused:
            ctypes.set_errno(1)
            return -1
        if number == 444:
            if arguments[-1] == 1:
                return self.version
            assert isinstance(arguments[0], bytes)
            files, network, scopes = struct.unpack("=QQQ", arguments[0])
            self.rights = (files, network, scopes)
            return os.open(os.devnull, os.O_RDONLY)
        return 0


@pytest.fixture
def kernel(monkeypatch):
    def use(version: int, refused: int = 0) -> FakeKernel:
        fake = FakeKernel(version, refused)
        library = SimpleNamespace(syscall=fake)
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
        return fake

    return use


@pytest.mark.parametrize(
    ("version", "rights"),
    [
        (1, (2**13 - 1, 0, 0)),
        (2, (2**14 - 1, 0, 0)),
        (3, (2**15 - 1, 0, 0)),
        (4, (2**15 - 1, 3, 0)),
        (5, (2**16 - 1, 3, 0)),
        (6, (2**16 - 1, 3, 3)),
        (99, (2**16 - 1, 3, 3)),
    ],
)
def test_no_kernel_is_asked_for_more_than_it_has(version, rights, kernel):
    fake = kernel(version)
    assert landlock.restrict([(0, landlock.READ_FILE)]) == version
    assert fake.rights == rights
    assert fake.calls == [444, 444, 445, 446]


@pytest.mark.parametrize("version", [0, -1])
def test_without_landlock_nothing_is_restricted(version, kernel):
    fake = kernel(version)
    assert landlock.restrict([(0, landlock.READ_FILE)]) == 0
    assert fake.calls == [444]


@pytest.mark.parametrize("refused", [445, 446])
def test_a_kernel_that_refuses_is_an_error(refused, kernel):
    kernel(7, refused)
    with pytest.raises(PermissionError):
        landlock.restrict([(0, landlock.READ_FILE)])


@pytest.mark.slow
def test_what_is_not_named_is_out_of_reach(tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    for each in (mine, other):
        each.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mine, other],
        check=True,
        capture_output=True,
        timeout=120,
    )
    expected = [b"0", b"no"] if landlock.version() else [b"0", b"0"]
    assert done.stdout.split() == expected


def test_the_kernels_error_tells_why_there_is_none(kernel):
    kernel(-1)
    ctypes.set_errno(errno.EOPNOTSUPP)
    assert landlock.kernel_error() == os.strerror(errno.EOPNOTSUPP)
    kernel(1)
    assert landlock.kernel_error() == ""
