import ctypes
import resource

from inferd.limits.worker import WORKER_OPEN_FILES
from inferd.worker.sandbox import drop_privileges
from tests.fakes.libc import NoLibrary


def test_a_bound_that_is_lower_already_stays(monkeypatch):
    bounds: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 128))
    monkeypatch.setattr(resource, "setrlimit", bounds.__setitem__)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: NoLibrary)
    drop_privileges()
    assert bounds == {resource.RLIMIT_CORE: (0, 0), resource.RLIMIT_NOFILE: (128, 128)}


def test_without_a_bound_there_is_one(monkeypatch):
    bounds: dict[int, tuple[int, int]] = {}
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: endless)
    monkeypatch.setattr(resource, "setrlimit", bounds.__setitem__)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: NoLibrary)
    drop_privileges()
    assert bounds[resource.RLIMIT_NOFILE] == (WORKER_OPEN_FILES, WORKER_OPEN_FILES)
