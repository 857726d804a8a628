import mmap
import os
import resource

import pytest

from inferd.limits.line_decoder import DECODE_MEMORY_BYTES
from inferd.line_decoder import sandbox
from inferd.line_decoder.sandbox import DECODING
from inferd.sandbox import bpf, landlock, seccomp
from inferd.sandbox.seccomp import ENOSYS_CALLS
from inferd.sandbox.syscalls import MACHINES, syscall_numbers
from tests.cases import each_case
from tests.fakes.bpf import verdict

BEYOND = [*range(470, 600), 1023, 2**16, 2**30, 2**31, 2**32 - 1]
"""Numbers that no table has yet; from 2**30 on, x86-64 has its calls once more."""


@pytest.fixture(params=MACHINES.values(), ids=lambda machine: machine.name)
def said(request):
    """What the filter says of a call by its name or number, on each processor."""
    machine, table = request.param, syscall_numbers(request.param)
    code = bpf.build_filter(machine.architecture, table, DECODING, ENOSYS_CALLS)

    def of(call: str | int, *arguments: int) -> int:
        number = table[call] if isinstance(call, str) else call
        return verdict(code, machine.architecture, number, arguments)

    return of, table


# --- the list -----------------------------------------------------------------------------


def test_every_call_of_the_table_is_allowed_by_name_or_fails_with_eperm(said):
    of, table = said
    for name, number in table.items():
        answers = {of(number, *[each] * 6) for each in (0, -1, 1, 4321, 2**46)}
        if name in ENOSYS_CALLS:
            assert answers == {bpf.REFUSE_ENOSYS}
        elif name not in DECODING:
            assert answers == {bpf.REFUSE_EPERM}, name
        else:
            assert answers <= {bpf.ALLOW, bpf.REFUSE_EPERM}
            assert DECODING[name] or answers == {bpf.ALLOW}
        assert of(2**30 | number) == bpf.REFUSE_EPERM
    assert {of(number) for number in BEYOND} == {bpf.REFUSE_EPERM}


def test_few_calls_are_left(said):
    """What the documents say; who makes the list longer says so there."""
    _, table = said
    assert len({*DECODING} & {*table}) == len(DECODING) == 18


def test_no_allowed_call_opens_creates_starts_or_reaches_anything(said):
    _, table = said
    beginnings = ("open", "creat", "fork", "vfork", "exec", "socket", "connect", "kill")
    makers = {name for name in table if name.startswith(beginnings)}
    makers |= {"clone", "clone3", "recvmsg", "sendmsg", "read", "write", "pipe2"}
    makers |= {"dup", "fcntl", "ioctl", "memfd_create", "prctl", "seccomp", "ptrace"}
    assert len(makers) > 20
    assert makers & {*DECODING} == set()


@each_case(
    ("call", "arguments", "allowed"),
    [
        ("mmap", (0, 4096, mmap.PROT_READ | mmap.PROT_WRITE), True),
        ("mmap", (0, 4096, mmap.PROT_READ | mmap.PROT_EXEC), False),
        ("mprotect", (0, 4096, mmap.PROT_READ), True),
        ("mprotect", (0, 4096, mmap.PROT_EXEC), False),
        ("sendto", (4, 1, 1, 0, 0, 0), True),
        ("sendto", (4, 1, 1, 0, 2**46, 16), False),
        ("prlimit64", (0, resource.RLIMIT_CPU), True),
        ("prlimit64", (0, resource.RLIMIT_AS), False),
        ("prlimit64", (1, resource.RLIMIT_CPU), False),
        ("futex", (2**46, 1), True),
        ("futex", (2**46, 129), True),
        ("futex", (2**46, 0), False),  # to wait
        ("futex", (2**46, 6), False),  # to inherit a priority
    ],
)
def test_a_call_is_allowed_in_the_form_that_is_needed(said, call, arguments, allowed):
    of, _ = said
    assert of(call, *arguments) == (bpf.ALLOW if allowed else bpf.REFUSE_EPERM)


# --- to enter -----------------------------------------------------------------------------


@pytest.fixture
def kernel(monkeypatch):
    """A kernel that takes what it is told, and what that was, in its order."""
    taken: list[object] = []

    def take_files(allowed: object) -> int:
        taken.append(allowed)
        return 7

    def limit(what: int, bounds: tuple[int, int]) -> None:
        taken.append((what, bounds))

    monkeypatch.setattr(sandbox, "set_no_new_privs", lambda: taken.append("privileges"))
    monkeypatch.setattr(
        sandbox, "drop_capabilities", lambda: taken.append("capabilities")
    )
    monkeypatch.setattr(landlock, "restrict", take_files)
    monkeypatch.setattr(seccomp, "restrict", taken.append)
    monkeypatch.setattr(resource, "setrlimit", limit)
    return taken


def test_all_restrictions_apply_and_system_calls_last(kernel):
    boxed = sandbox.enter_sandbox()
    assert boxed.is_complete
    assert (boxed.landlock, boxed.files_unrestricted) == (7, False)
    assert kernel[:3] == ["privileges", "capabilities", ()]
    assert dict(kernel[3:-1]) == {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_FSIZE: (0, 0),
        resource.RLIMIT_NPROC: (0, 0),
        resource.RLIMIT_NOFILE: (0, 0),
        resource.RLIMIT_AS: (DECODE_MEMORY_BYTES, DECODE_MEMORY_BYTES),
    }
    assert kernel[-1] is DECODING


def test_missing_kernel_features_are_reported_and_not_fatal(kernel, monkeypatch):
    def refuse(_rules: object) -> None:
        raise seccomp.NoFilterError(os.strerror(22))

    monkeypatch.setattr(seccomp, "restrict", refuse)
    monkeypatch.setattr(landlock, "restrict", lambda _: 0)
    boxed = sandbox.enter_sandbox()
    assert not boxed.is_complete
    landlock_words, seccomp_words = boxed.missing
    assert landlock_words.startswith("Landlock: ")
    assert seccomp_words == f"seccomp: {os.strerror(22)}"


def test_a_processor_without_a_list_has_limits_all_the_same(kernel, monkeypatch):
    monkeypatch.setattr(sandbox, "this_machine", lambda: None)
    assert sandbox.enter_sandbox().landlock == 7
