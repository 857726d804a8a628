import ctypes
import platform
import resource

import pytest

from inferd.config import LlamaCppSettings
from inferd.worker import box, landlock, seccomp
from inferd.worker.limits import WORKER_OPEN_FILES
from tests.fakes.boxed import try_in_box

ALLOWED = {
    "read the model",
    "open the model's descriptor anew",
    "read what it is made of",
    "ask for memory",
    "receive a medium",
    "write to nothing",
    "run Python",
    "signal itself",
    "start a thread",
    "see whether it does",
}
NO_FILES = {
    "read another model",
    "read passwords",
    "list the root",
    "write to the model",
    "cut another model",
    "make a file",
    "make a directory",
    "remove the model",
    "write to its own code",
    "run a shell",
}
NO_CALLS = {
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
}
NO_OTHERS = {"read the daemon's environment", "see the daemon's memory"}


@pytest.mark.slow
def test_what_a_backend_has_no_use_for_is_given_up(tmp_path):
    found = try_in_box(tmp_path)
    boxed = found["boxed"]
    assert {name: found[name] for name in ALLOWED} == dict.fromkeys(ALLOWED, "")
    assert boxed["landlock"] == landlock.version()
    assert boxed["seccomp"] is (platform.machine() in seccomp._MACHINES)
    if boxed["landlock"]:
        assert {found[name] for name in NO_FILES} == {"EACCES"}
    if boxed["landlock"] >= 6:
        assert found["signal the daemon"] == "EPERM"
    if boxed["seccomp"]:
        assert {found[name] for name in NO_CALLS} == {"EPERM"}
    assert {found[name] for name in NO_OTHERS} == {"EACCES"}
    assert found["core"] == [0, 0]
    assert not boxed["is_open"]


@pytest.mark.slow
def test_a_backend_with_an_accelerator_keeps_its_devices_and_sockets(tmp_path):
    found = try_in_box(tmp_path, n_gpu_layers=-1)
    assert found["boxed"]["is_open"]
    assert found["read another model"] == ""
    assert found["open a Unix socket"] == ""
    assert found["core"] == [0, 0]


def test_a_bound_that_is_lower_already_stays(monkeypatch):
    bounds: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 128))
    monkeypatch.setattr(resource, "setrlimit", bounds.__setitem__)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: NoLibrary)
    box.give_up_privileges()
    assert bounds == {resource.RLIMIT_CORE: (0, 0), resource.RLIMIT_NOFILE: (128, 128)}


def test_without_a_bound_there_is_one(monkeypatch):
    bounds: dict[int, tuple[int, int]] = {}
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: endless)
    monkeypatch.setattr(resource, "setrlimit", bounds.__setitem__)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: NoLibrary)
    box.give_up_privileges()
    assert bounds[resource.RLIMIT_NOFILE] == (WORKER_OPEN_FILES, WORKER_OPEN_FILES)


class NoLibrary:
    """A C library that changes nothing about us."""

    @staticmethod
    def prctl(*_: int) -> int:
        return 0

    @staticmethod
    def capget(*_: object) -> int:
        return -1


def test_a_kernel_that_refuses_is_told_and_not_fatal(monkeypatch):
    def refuse(*_: object) -> int:
        raise PermissionError(1, "a filter around us")

    monkeypatch.setattr(landlock, "restrict", refuse)
    monkeypatch.setattr(seccomp, "restrict", lambda: False)
    monkeypatch.setattr(seccomp, "refuse_children", lambda: False)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: NoLibrary)
    boxed = box.enter(LlamaCppSettings(name="m"))
    assert (boxed.landlock, boxed.seccomp, boxed.is_open) == (0, False, False)


def test_places_that_are_not_there_are_left_out(monkeypatch):
    taken: list[tuple[int, int]] = []

    def take(allowed: list[tuple[int, int]]) -> int:
        taken.extend(allowed)
        return 7

    monkeypatch.setenv("LD_LIBRARY_PATH", "/no/such/place::")
    monkeypatch.setattr(landlock, "restrict", take)
    monkeypatch.setattr(seccomp, "restrict", lambda: True)
    monkeypatch.setattr(seccomp, "refuse_children", lambda: True)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: NoLibrary)
    assert box.enter(LlamaCppSettings(name="m"), [99]).landlock == 7
    assert taken[0] == (99, landlock.READ_FILE)
    assert all(fd >= 0 for fd, _ in taken)
