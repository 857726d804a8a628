import mmap
import socket
import time

from inferd.sandbox import bpf
from inferd.sandbox.arguments import (
    ALLOWED_CLOCKS,
    NO_EXEC,
    RECVFROM_IN_BAND,
    RECVMSG_IN_BAND,
    SENDTO_CONNECTED,
)
from tests.cases import each_case
from tests.fakes.bpf import verdict

ARCHITECTURE, NUMBER = 0xC000_003E, 7


@each_case("flags", [0, socket.MSG_DONTWAIT, socket.MSG_OOB, 1 << 31])
@each_case(
    ("rule", "before"),
    [
        (SENDTO_CONNECTED, (3, 1, 9)),
        (RECVFROM_IN_BAND, (3, 1, 9)),
        (RECVMSG_IN_BAND, (3, 1)),
    ],
)
def test_messages_are_in_band(rule, before, flags):
    is_usual = flags in (0, socket.MSG_DONTWAIT)
    assert is_allowed(rule, *before, flags) == is_usual


def test_nothing_is_sent_to_an_address():
    assert not is_allowed(SENDTO_CONNECTED, 3, 1, 9, 0, 1)


@each_case(
    ("clock", "allowed"),
    [
        (time.CLOCK_MONOTONIC, True),
        (time.CLOCK_THREAD_CPUTIME_ID, True),
        (~1234 << 3 | 2, False),  # of another process
        (~3 << 3 | 3, False),  # of a device
        (12, False),
    ],
)
def test_clocks_are_the_machine_s_or_one_s_own(clock, allowed):
    assert is_allowed(ALLOWED_CLOCKS, clock & 0xFFFF_FFFF) == allowed


def test_memory_is_not_executable():
    assert is_allowed(NO_EXEC, 0, 4096, mmap.PROT_READ | mmap.PROT_WRITE)
    assert not is_allowed(NO_EXEC, 0, 4096, mmap.PROT_READ | mmap.PROT_EXEC)


def is_allowed(rule, *arguments: int) -> bool:
    code = bpf.build_filter(ARCHITECTURE, {"call": NUMBER}, {"call": rule}, ())
    return verdict(code, ARCHITECTURE, NUMBER, arguments) == bpf.ALLOW
