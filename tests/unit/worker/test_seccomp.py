import errno
import platform
import struct
import subprocess
import sys

import pytest

from inferd.worker import seccomp

X86_64 = 0xC000_003E
AARCH64 = 0xC000_00B7
I386 = 0x4000_0003
ALLOW = 0x7FFF_0000
REFUSE = 0x0005_0000 | errno.EPERM
NO_SUCH_CALL = 0x0005_0000 | errno.ENOSYS

PROGRAM = """
import ctypes, os, resource, socket
from inferd.worker.seccomp import restrict
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
print(restrict())
try:
    socket.socket(socket.AF_INET)
except PermissionError:
    print("no")
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
try:
    resource.prlimit(os.getppid(), resource.RLIMIT_CORE)
except PermissionError:
    print("neither")
"""


def verdict(code: bytes, architecture: int, number: int, argument: int = 7) -> int:
    """Run a filter as the kernel does."""
    instructions = list(struct.iter_unpack("=HBBI", code))
    place, value = 0, 0
    while True:
        kind, yes, no, operand = instructions[place]
        place += 1
        if kind == 0x20:
            value = {0: number, 4: architecture, 16: argument}[operand]
        elif kind == 0x15:
            place += yes if value == operand else no
        elif kind == 0x35:
            place += yes if value >= operand else no
        elif kind == 0x45:
            place += yes if value & operand else no
        else:
            assert kind == 0x06
            return int(operand)


@pytest.mark.parametrize(
    ("column", "architecture", "allowed", "refused"),
    [
        (0, X86_64, [0, 1, 39, 53, 56, 435], [41, 101, 165, 304, 425, 2**30 + 1]),
        (1, AARCH64, [63, 64, 172, 199, 220, 435], [198, 117, 40, 265, 425]),
    ],
)
def test_calls_on_the_list_are_refused_and_no_others(
    column, architecture, allowed, refused
):
    code = seccomp.program(column, architecture)
    assert {verdict(code, architecture, each) for each in allowed} == {ALLOW}
    assert {verdict(code, architecture, each) for each in refused} == {REFUSE}


def test_every_call_of_the_list_is_refused():
    for column, architecture in ((0, X86_64), (1, AARCH64)):
        code = seccomp.program(column, architecture)
        for numbers in seccomp._REFUSED.values():
            assert verdict(code, architecture, numbers[column]) == REFUSE


@pytest.mark.parametrize(
    ("column", "architecture", "number"), [(0, X86_64, 302), (1, AARCH64, 261)]
)
def test_only_ones_own_limits_can_be_set(column, architecture, number):
    code = seccomp.program(column, architecture)
    assert verdict(code, architecture, number, 0) == ALLOW
    assert verdict(code, architecture, number, 1) == REFUSE
    assert verdict(code, architecture, number, 2**32 - 1) == REFUSE


@pytest.mark.parametrize("number", [0, 41, 102, 2**31])
@pytest.mark.parametrize("write", [seccomp.program, seccomp.childless])
def test_calls_of_another_architecture_are_refused(write, number):
    assert verdict(write(0, X86_64), I386, number) == REFUSE


THREAD = 0x003D_0F00
"""The flags with which C libraries start threads."""
CHILD = 0x0120_0011
"""And with which they fork."""


@pytest.mark.parametrize(
    ("column", "architecture", "children", "clone", "prctl"),
    [(0, X86_64, [57, 58], 56, 157), (1, AARCH64, [], 220, 167)],
)
def test_threads_can_be_started_and_no_processes(
    column, architecture, children, clone, prctl
):
    def said(number: int, argument: int = 0) -> int:
        return verdict(code, architecture, number, argument)

    code = seccomp.childless(column, architecture)
    assert {said(each) for each in children} <= {REFUSE}
    assert said(435) == NO_SUCH_CALL
    assert [said(clone, each) for each in (THREAD, CHILD, 0)] == [ALLOW, REFUSE, REFUSE]
    assert [said(prctl, each) for each in (0, 1, 2, 22)] == [
        ALLOW,
        REFUSE,
        ALLOW,
        ALLOW,
    ]
    others = {*range(500)} - {*children, 435, clone, prctl}
    assert {said(each, argument) for each in others for argument in (0, 1)} == {ALLOW}


def test_a_processor_that_nobody_has_numbered_gives_up_nothing(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert seccomp.restrict() is False
    assert seccomp.refuse_children() is False


@pytest.mark.slow
def test_a_process_that_gave_them_up_has_no_sockets_and_no_say_over_others():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, timeout=60
    )
    is_known = platform.machine() in seccomp._MACHINES
    told = [b"True", b"no", b"neither"] if is_known else [b"False"]
    assert done.stdout.split() == told
