import pytest

from tests.daemon.harness import mock
from tests.fakes.boxed import try_in_box
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


@pytest.mark.slow
def test_code_that_is_run_in_a_worker_reaches_nobody_s_files(tmp_path):
    found = try_in_box(tmp_path)
    assert found["boxed"]["landlock"]
    out_of_reach = (
        "read passwords",
        "read another model",
        "make a file",
        "run a shell",
    )
    assert {found[name] for name in out_of_reach} == {"EACCES"}
    assert found["write to the model"] == "EACCES"
    assert found["read the model"] == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "attempt",
    ["read the daemon's environment", "see the daemon's memory", "trace the daemon"],
)
def test_code_that_is_run_in_a_worker_does_not_reach_the_daemon(attempt, tmp_path):
    assert try_in_box(tmp_path)[attempt] in ("EACCES", "EPERM")


def test_native_libraries_are_imported_by_the_worker_alone():
    importers = {
        module
        for module, tree in modules()
        if {name.split(".")[0] for name in imports(tree)} & NATIVE
    }
    assert importers
    assert all(module.startswith(ALLOWED) for module in importers)
