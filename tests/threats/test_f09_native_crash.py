import pytest

from tests.daemon.harness import mock
from tests.fakes.source import imports, modules

NATIVE = {"llama_cpp", "numpy", "pywhispercpp"}
ALLOWED = ("worker/llama/", "models/convert/")
"""What runs in a process of its own: the worker, and the converter of models."""


@pytest.mark.slow
@pytest.mark.parametrize("die_by", ["SIGSEGV", "SIGABRT"])
def test_a_crash_costs_the_worker_and_the_requests_that_run_in_it(die_by, make_daemon):
    deadly = mock(tokens=["a", "b"], die_after_tokens=2, die_by=die_by)
    daemon = make_daemon({"backend": [deadly]}).start()
    workers = daemon.worker_pids()
    *tokens, error = daemon.ask()
    assert [token["content"] for token in tokens] == ["a", "b"]
    assert error["code"] == "backend_unavailable"
    assert die_by in error["message"]
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"
    assert daemon.is_running
    assert daemon.worker_pids() != workers


def test_native_libraries_are_imported_by_the_worker_alone():
    importers = {
        module
        for module, tree in modules()
        if {name.split(".")[0] for name in imports(tree)} & NATIVE
    }
    assert importers
    assert all(module.startswith(ALLOWED) for module in importers)
