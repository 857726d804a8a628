import mmap

import pytest

from inferd.media_decoder.sandbox import DECODING, FORKING
from inferd.sandbox import bpf
from inferd.sandbox.seccomp import ENOSYS_CALLS
from inferd.sandbox.syscalls import MACHINES, syscall_numbers
from tests.cases import each_case
from tests.fakes.bpf import verdict


@pytest.fixture(params=MACHINES.values(), ids=lambda machine: machine.name)
def machine(request):
    return request.param


def said(machine, rules, call, arguments):
    table = syscall_numbers(machine)
    code = bpf.build_filter(machine.architecture, table, rules, ENOSYS_CALLS)
    return verdict(code, machine.architecture, table[call], arguments)


def test_no_call_of_a_decoder_opens_starts_or_reaches_anything(machine):
    table = syscall_numbers(machine)
    beginnings = ("open", "creat", "fork", "vfork", "exec", "socket", "connect", "kill")
    makers = {name for name in table if name.startswith(beginnings)}
    makers |= {"clone", "clone3", "recvmsg", "sendmsg", "sendto", "pipe2", "dup"}
    makers |= {"fcntl", "ioctl", "memfd_create", "prctl", "seccomp", "ptrace"}
    makers |= {"prlimit64", "pidfd_open", "statx", "newfstatat", "ftruncate"}
    assert makers & {*DECODING} == set()


def test_the_process_that_forks_opens_and_reaches_nothing_either(machine):
    table = syscall_numbers(machine)
    beginnings = ("open", "creat", "vfork", "exec", "socket", "connect", "kill")
    makers = {name for name in table if name.startswith(beginnings)}
    makers |= {"sendto", "pipe2", "dup", "fcntl", "ioctl", "memfd_create", "ptrace"}
    assert makers & {*FORKING} == set()


@each_case(
    ("rules", "call", "arguments", "is_allowed"),
    [
        (DECODING, "mmap", (0, 4096, mmap.PROT_READ | mmap.PROT_WRITE), True),
        (DECODING, "mmap", (0, 4096, mmap.PROT_READ | mmap.PROT_EXEC), False),
        (DECODING, "mprotect", (0, 4096, mmap.PROT_EXEC), False),
        (DECODING, "futex", (2**46, 129), True),
        (DECODING, "futex", (2**46, 0), False),  # to wait
        (FORKING, "clone", (0x0120_0011,), True),
        (FORKING, "clone", (0x003D_0F00,), False),  # a thread
        (FORKING, "clone", (0x1000_0011,), False),  # a namespace
        (FORKING, "prctl", (1, 9), True),
        (FORKING, "prctl", (4, 1), False),
        (FORKING, "prlimit64", (0, 9), True),
        (FORKING, "prlimit64", (1, 9), False),
    ],
)
def test_arguments_are_restricted(machine, rules, call, arguments, is_allowed):
    expected = bpf.ALLOW if is_allowed else bpf.REFUSE_EPERM
    assert said(machine, rules, call, arguments) == expected
