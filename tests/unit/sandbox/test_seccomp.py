import ctypes
import errno
import os
import platform
import subprocess
import sys

import pytest

from inferd.line_decoder.sandbox import DECODING
from inferd.sandbox import bpf, seccomp
from inferd.sandbox.seccomp import ENOSYS_CALLS
from inferd.sandbox.syscalls import MACHINES, Machine, syscall_numbers, this_machine
from inferd.worker.sandbox.profiles import (
    ACCELERATED,
    LOADING,
    SERVING,
    allow_own_signals,
)
from tests.fakes.bpf import verdict
from tests.fakes.calling import answers, in_audit, in_stage
from tests.fakes.each_call import ARGUMENTS
from tests.fakes.in_decoder import each_call as in_decoder

MACHINE = this_machine() or MACHINES["x86_64"]
TABLE = syscall_numbers(MACHINE)
BEYOND = [*range(470, 560), 1023, 2**30, 2**30 | 39, 2**31 - 1]
ENDING = {"exit", "exit_group", "rt_sigreturn"}
"""What ends a process when it is called so, and is allowed."""
UNFILTERED = {"uretprobe", "uprobe"}
"""Where a kernel has them it asks no filter: they are made by what it puts into programs
that are probed, and from anywhere else they fail, or end the process, by themselves."""
WAITING = {
    "pause",
    "ppoll",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "wait4",
    "waitid",
    "select",
}

NOBODY = 2**22
"""No process: none may signal -1, which is all of them."""

RUNS = {
    "loading": (in_stage("loading"), allow_own_signals(NOBODY, LOADING)),
    "serving": (in_stage("serving"), allow_own_signals(NOBODY, SERVING)),
    "accelerated": (in_stage("accelerated"), allow_own_signals(NOBODY, ACCELERATED)),
    "audit": (in_audit, allow_own_signals(NOBODY, SERVING)),
    "decoder": (in_decoder, DECODING),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_call_that_is_on_no_list_fails_with_eperm_and_ends_nothing(name):
    run, rules = RUNS[name]
    code = bpf.build_filter(MACHINE.architecture, TABLE, rules, ENOSYS_CALLS)
    told = {
        number: verdict(code, MACHINE.architecture, number, ARGUMENTS)
        for number in [*TABLE.values(), *BEYOND]
    }
    names = {number: call for call, number in TABLE.items()}
    left_out = UNFILTERED | WAITING & {*rules}
    asked = [each for each in told if names.get(each) not in left_out]
    found = answers(run, asked)
    refused = {number for number in asked if told[number] == bpf.REFUSE_EPERM}
    assert len(refused) > 300 if name != "accelerated" else len(refused) > 250
    assert {number: found[number] for number in refused} == dict.fromkeys(
        refused, errno.EPERM
    )
    assert found[TABLE["clone3"]] == errno.ENOSYS
    allowed = {*asked} - refused - {TABLE["clone3"]}
    ended = {names[each] for each in allowed if found[each] is None}
    assert ended == ENDING & {*rules}
    assert {found[each] for each in allowed} & {errno.EPERM, errno.ENOSYS} == set()


def test_a_decoder_may_do_less_than_a_worker_that_serves():
    assert {*DECODING} < {*SERVING, "recvfrom"}


THREADS = """
import ctypes, sys, threading
from inferd.sandbox import seccomp
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
rules = {name: () for name in sys.argv[1].split()}
go, told = threading.Event(), []

def wait():
    go.wait()
    told.append(ctypes.CDLL(None, use_errno=True).syscall(39))

thread = threading.Thread(target=wait)
thread.start()
seccomp.restrict(rules)
go.set()
thread.join()
print(told)
"""


@pytest.mark.slow
def test_a_filter_holds_for_threads_that_run_already():
    done = subprocess.run(
        [sys.executable, "-c", THREADS, " ".join({*LOADING} - {"getpid"})],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[-1]\n", done.stderr


class FakeKernel:
    """Takes system calls, and answers with what it is told."""

    def __init__(self, *said: int) -> None:
        self.said = list(said)
        self.flags: list[int] = []

    def syscall(self, _number: int, _mode: int, flags: int, _program: bytes) -> int:
        self.flags.append(flags)
        ctypes.set_errno(errno.EINVAL)
        return self.said.pop(0)


@pytest.fixture
def kernel(monkeypatch):
    def use(*said: int) -> FakeKernel:
        fake = FakeKernel(*said)
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: fake)
        return fake

    return use


def test_a_kernel_that_does_not_know_a_flag_is_asked_without_it(kernel):
    fake = kernel(-1, 0)
    seccomp.restrict(SERVING)
    assert fake.flags == [0b101, 0b001]


@pytest.mark.parametrize(
    ("said", "reason"), [((-1, -1), os.strerror(errno.EINVAL)), ((7,), "thread 7")]
)
def test_a_kernels_refusal_is_an_error(said, reason, kernel):
    kernel(*said)
    with pytest.raises(seccomp.NoFilterError, match=reason):
        seccomp.restrict(SERVING)


def test_an_unknown_processor_is_an_error(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(seccomp.NoFilterError, match="processor"):
        seccomp.restrict(SERVING)


def test_each_processor_has_a_number_for_installing_it():
    assert {
        machine.name: syscall_numbers(machine)["seccomp"]
        for machine in MACHINES.values()
    } == {
        "x86_64": 317,
        "aarch64": 277,
    }
    assert isinstance(MACHINE, Machine)
