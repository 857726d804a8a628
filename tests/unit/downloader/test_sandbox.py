import mmap
import os
import resource
import socket

import pytest

from inferd.downloader import sandbox
from inferd.downloader.sandbox import DOWNLOADING
from inferd.limits.models import PULL_MEMORY_BYTES
from inferd.sandbox import bpf, landlock, seccomp
from inferd.sandbox.privileges import UNPRIVILEGED
from inferd.sandbox.seccomp import ENOSYS_CALLS
from inferd.sandbox.syscalls import MACHINES, syscall_numbers
from tests.cases import each_case
from tests.fakes.bpf import verdict
from tests.fakes.in_downloader import try_in_downloader

ALLOWED = {"connect", "ask for names"}


@pytest.fixture(params=MACHINES.values(), ids=lambda machine: machine.name)
def said(request):
    """What the filter says of a call by its name, on each processor."""
    machine, table = request.param, syscall_numbers(request.param)
    code = bpf.build_filter(machine.architecture, table, DOWNLOADING, ENOSYS_CALLS)

    def of(call: str, *arguments: int) -> int:
        return verdict(code, machine.architecture, table[call], arguments)

    return of, table


def test_no_allowed_call_writes_files_or_starts_or_signals_anything(said):
    _, table = said
    beginnings = ("creat", "fork", "vfork", "exec", "kill", "tkill", "tgkill", "mkdir")
    others = ("unlink", "rename", "link", "symlink", "truncate", "ftruncate", "chmod")
    makers = {name for name in table if name.startswith((*beginnings, *others))}
    makers |= {
        "clone",
        "clone3",
        "memfd_create",
        "ptrace",
        "prctl",
        "seccomp",
        "setuid",
    }
    makers |= {"process_vm_readv", "listen", "accept", "accept4", "open", "openat2"}
    assert len(makers) > 25
    assert makers & {*DOWNLOADING} == set()


@each_case(
    ("call", "arguments", "allowed"),
    [
        ("openat", (-100, 1, os.O_RDONLY | os.O_CLOEXEC), True),
        ("openat", (-100, 1, os.O_WRONLY), False),
        ("openat", (-100, 1, os.O_RDWR), False),
        ("openat", (-100, 1, os.O_RDONLY | os.O_CREAT), False),
        ("openat", (-100, 1, os.O_RDONLY | os.O_TRUNC), False),
        ("openat", (-100, 1, os.O_TMPFILE), False),
        ("socket", (socket.AF_INET, socket.SOCK_STREAM), True),
        ("socket", (socket.AF_INET6, socket.SOCK_STREAM), True),
        ("socket", (socket.AF_UNIX, socket.SOCK_STREAM), False),
        ("socket", (socket.AF_PACKET, socket.SOCK_RAW), False),
        ("socket", (socket.AF_VSOCK, socket.SOCK_STREAM), False),
        ("mprotect", (0, 4096, mmap.PROT_READ), True),
        ("mprotect", (0, 4096, mmap.PROT_EXEC), False),
        ("prlimit64", (0, resource.RLIMIT_AS), True),
        ("prlimit64", (1, resource.RLIMIT_AS), False),
    ],
)
def test_a_call_is_allowed_in_the_form_that_is_needed(said, call, arguments, allowed):
    of, _ = said
    assert of(call, *arguments) == (bpf.ALLOW if allowed else bpf.REFUSE_EPERM)


@pytest.mark.slow
def test_nothing_but_connections_is_left(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    tmp_path.chmod(0o777)
    (tmp_path / "secret").chmod(0o666)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = try_in_downloader(tmp_path, listener.getsockname()[1])
    ids, missing = found.pop("ids"), found.pop("missing")
    own = [os.getuid(), os.geteuid(), os.getgid()]
    assert ids == ([UNPRIVILEGED] * 3 if os.geteuid() == 0 else own)
    assert missing == []
    assert {name for name, outcome in found.items() if not outcome} == ALLOWED
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


# --- to enter -----------------------------------------------------------------------------


@pytest.fixture
def kernel(monkeypatch):
    """A kernel that takes what it is told, and what that was, in its order."""
    taken: list[object] = []

    def take_files(_allowed: object, *, refused_tcp: int) -> int:
        taken.append(refused_tcp)
        return 7

    def take(name):
        return lambda *_: taken.append(name)

    monkeypatch.setattr(sandbox, "set_no_new_privs", take("privileges"))
    monkeypatch.setattr(sandbox, "drop_capabilities", take("capabilities"))
    monkeypatch.setattr(sandbox, "die_with_parent", take("parent"))
    for name in ("setgroups", "setresgid", "setresuid"):
        monkeypatch.setattr(os, name, take(name))
    monkeypatch.setattr(landlock, "restrict", take_files)
    monkeypatch.setattr(seccomp, "restrict", taken.append)
    monkeypatch.setattr(resource, "setrlimit", lambda what, _: taken.append(what))
    return taken


@pytest.mark.parametrize(
    ("uid", "dropped"),
    [(0, ["setgroups", "setresgid", "setresuid"]), (1000, [])],
)
def test_all_restrictions_apply_and_system_calls_last(
    kernel, monkeypatch, uid, dropped
):
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert sandbox.enter_sandbox(1) == ()
    assert kernel == [
        *dropped,
        *("parent", "privileges", "capabilities", landlock.BIND_TCP),
        *(resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC),
        *(resource.RLIMIT_AS, DOWNLOADING),
    ]
    assert sandbox._LIMITS[resource.RLIMIT_AS] == PULL_MEMORY_BYTES


def test_missing_kernel_features_are_reported_and_not_fatal(kernel, monkeypatch):
    def refuse(_rules: object) -> None:
        raise seccomp.NoFilterError(os.strerror(22))

    monkeypatch.setattr(seccomp, "restrict", refuse)
    monkeypatch.setattr(landlock, "restrict", lambda *_, **__: 0)
    landlock_words, seccomp_words = sandbox.enter_sandbox(1)
    assert landlock_words.startswith("Landlock: ")
    assert seccomp_words == f"seccomp: {os.strerror(22)}"
