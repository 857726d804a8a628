import subprocess
import sys

import pytest

from inferd.config.kinds.kind import Sandbox
from inferd.sandbox import landlock, seccomp
from inferd.sandbox.syscalls import this_machine
from inferd.worker.backend import LoadError
from inferd.worker.sandbox import WorkerSandbox, landlock_paths, stages
from inferd.worker.sandbox.profiles import LOADING, SERVING
from tests.fakes.in_worker_sandbox import try_in_sandbox

READS = {
    "read the model",
    "open the model's descriptor anew",
    "read what it is made of",
    "ask for memory",
    "write to nothing",
}
WORKS = {"receive a medium", "signal itself", "start a thread"}
NO_FILES = {
    "read another model",
    "read passwords",
    "list the root",
    "write to the model",
    "make a file",
}
NO_CALLS = {
    "cut another model",
    "make a directory",
    "remove the model",
    "open a network socket",
    "open a datagram socket",
    "open a Unix socket",
    "open a netlink socket",
    "make a ring",
    "trace the daemon",
    "fork",
    "start Python",
    "outlive the daemon",
    "lead a session",
    "leave the group",
    "signal the daemon",
    "call by another table",
}
NO_OTHERS = {"read the daemon's environment", "see the daemon's memory"}


@pytest.mark.slow
def test_while_loading_only_needed_actions_succeed(tmp_path):
    found = try_in_sandbox(tmp_path)
    boxed = found["boxed"]
    assert {found[name] for name in READS | WORKS} == {""}
    assert boxed["landlock"] == landlock.version()
    assert boxed["seccomp"] is (this_machine() is not None)
    assert boxed["missing"] == []
    assert {found[name] for name in NO_FILES | NO_OTHERS} == {"EACCES"}
    assert {name: found[name] for name in NO_CALLS} == dict.fromkeys(NO_CALLS, "EPERM")
    assert found["core"] == [0, 0]
    assert not boxed["files_unrestricted"]


@pytest.mark.slow
def test_while_serving_no_file_can_be_opened(tmp_path):
    found = try_in_sandbox(tmp_path, stage="serving")
    assert {found[name] for name in WORKS} == {""}
    refused = READS | NO_FILES | NO_CALLS | NO_OTHERS
    assert {name: found[name] for name in refused} == dict.fromkeys(refused, "EPERM")


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["loading", "serving"])
def test_a_backend_with_an_accelerator_keeps_files_and_sockets_of_services(
    stage, tmp_path
):
    found = try_in_sandbox(tmp_path, policy=Sandbox.ACCELERATED, stage=stage)
    assert found["boxed"]["files_unrestricted"]
    assert found["boxed"]["seccomp"]
    assert found["boxed"]["missing"] == []
    assert found["read another model"] == ""
    assert found["open a Unix socket"] == ""
    refused = {
        "open a network socket",
        "open a datagram socket",
        "open a netlink socket",
        "make a ring",
        "outlive the daemon",
        "lead a session",
        "leave the group",
        "call by another table",
    }
    assert {found[name] for name in refused} == {"EPERM"}
    assert found["core"] == [0, 0]


class FakeFilters:
    """Takes lists of calls, or refuses from the nth on."""

    def __init__(self, n_taken: int = 99) -> None:
        self.n_taken = n_taken
        self.taken: list[set[str]] = []

    def __call__(self, rules: dict[str, object]) -> None:
        if len(self.taken) >= self.n_taken:
            raise seccomp.NoFilterError("no such processor")
        self.taken.append(set(rules))


@pytest.fixture
def filters(monkeypatch):
    def use(n_taken: int = 99) -> FakeFilters:
        fake = FakeFilters(n_taken)
        monkeypatch.setattr(seccomp, "restrict", fake)
        monkeypatch.setattr(stages, "drop_capabilities", lambda _: None)
        monkeypatch.setattr(landlock_paths, "restrict_to_paths", lambda _: 7)
        return fake

    return use


OWN = {"kill", "tgkill"}


def test_a_worker_loads_and_then_serves_with_less(filters):
    fake = filters()
    sandbox = WorkerSandbox()
    assert sandbox.enter_loading(Sandbox.CPU).seccomp
    assert fake.taken == [{*LOADING} | OWN]
    sandbox.enter_serving()
    assert fake.taken[1:] == [{*SERVING} | OWN]


def test_a_kernel_that_refuses_is_reported_and_not_fatal(monkeypatch, filters):
    def refuse(_):
        raise PermissionError(1, "a filter around us")

    filters(0)
    monkeypatch.setattr(landlock_paths, "restrict_to_paths", refuse)
    sandbox = WorkerSandbox()
    boxed = sandbox.enter_loading(Sandbox.CPU)
    assert (boxed.landlock, boxed.seccomp, boxed.files_unrestricted) == (
        0,
        False,
        False,
    )
    assert boxed.missing == (
        "Landlock: a filter around us",
        "seccomp: no such processor",
    )
    sandbox.enter_serving()


def test_a_kernel_without_landlock_is_reported_with_its_error(monkeypatch, filters):
    filters()
    monkeypatch.setattr(landlock_paths, "restrict_to_paths", lambda _: 0)
    monkeypatch.setattr(landlock, "kernel_error", lambda: "Function not implemented")
    [missing] = WorkerSandbox().enter_loading(Sandbox.CPU).missing
    assert missing.startswith("Landlock: ")
    assert missing.endswith("(Function not implemented)")


def test_a_sandbox_that_cannot_be_tightened_fails_the_load(filters):
    filters(1)
    sandbox = WorkerSandbox()
    sandbox.enter_loading(Sandbox.CPU)
    with pytest.raises(LoadError, match="no such processor"):
        sandbox.enter_serving()


PREPARER = """
import os, signal, socket
from inferd.sandbox.pdeathsig import die_with_parent
from inferd.worker.sandbox import enter_rendering, enter_preparing, drop_privileges

read, write = os.pipe()
drop_privileges()
boxed = enter_preparing()
said = []

def attempt(what):
    try:
        what()
    except OSError as error:
        said.append(error.errno)
    else:
        said.append(0)

parent = os.getpid()
if not os.fork():
    die_with_parent(parent)
    enter_rendering()
    attempt(os.fork)
    attempt(lambda: os.kill(parent, 0))
    attempt(lambda: socket.socketpair())
    attempt(lambda: os.chmod(".", 0o755))
    attempt(lambda: os.stat("."))
    attempt(lambda: os.open("/proc/self/statm", os.O_RDONLY))
    os.write(write, repr(said).encode())
    os._exit(0)
os.wait()
def ended(fork):
    return os.waitpid(fork, 0)[1] & 127

def in_fork(what):
    fork = os.fork()
    if not fork:
        enter_rendering()
        what()
    return fork

aborted = ended(in_fork(os.abort))

def wait_for_alarm():
    signal.setitimer(signal.ITIMER_PROF, 0.01)
    while True:
        pass

stopped = ended(in_fork(wait_for_alarm))
attempt(socket.socketpair)
attempt(lambda: os.execv("/bin/true", ["true"]))
attempt(lambda: os.kill(os.getppid(), 0))
print(boxed.missing, os.read(read, 999).decode(), aborted, stopped, said)
"""


@pytest.mark.slow
def test_a_preparer_forks_and_its_forks_do_not():
    done = subprocess.run(
        [sys.executable, "-c", PREPARER], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "() [1, 1, 1, 1, 1, 1] 6 27 [1, 1, 1]", (
        done.stderr
    )
