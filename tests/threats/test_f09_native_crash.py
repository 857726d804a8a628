import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.daemon.harness import eventually, llamacpp, mock
from tests.fakes.in_worker_sandbox import try_in_sandbox
from tests.fakes.source import imports, modules
from tests.model.tiny import write_tiny_bert, write_tiny_model

NATIVE = {"llama_cpp", "numpy", "pywhispercpp"}
OF_CALLERS = "client/core/vectors.py"
"""Gives a caller of the client library arrays, in the caller's own process."""
ALLOWED = ("worker/llama/", "worker/whisper/", "models/convert/", OF_CALLERS)
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
    found = try_in_sandbox(tmp_path)
    assert found["boxed"]["landlock"]
    out_of_reach = (
        "read passwords",
        "read another model",
        "make a file",
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
    assert try_in_sandbox(tmp_path)[attempt] in ("EACCES", "EPERM")


@pytest.mark.slow
@pytest.mark.parametrize(
    "attempt",
    ["fork", "start Python", "outlive the daemon", "lead a session", "leave the group"],
)
def test_code_that_is_run_in_a_worker_leaves_nothing_behind(attempt, tmp_path):
    assert try_in_sandbox(tmp_path)[attempt] == "EPERM"


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "daemon"])
def test_what_tries_grammars_ends_with_the_worker_and_the_daemon(
    victim, tmp_path, make_daemon
):
    model = write_tiny_model(tmp_path / "m.gguf")
    daemon = make_daemon({"backend": [llamacpp(model, n_ctx=2048)]}).start()
    [worker] = daemon.worker_pids()
    assert daemon.ask(max_tokens=4, grammar="root ::= [a-z]+")[-1]["type"] == "done"
    assert {n_filters(each) for each in threads(worker)} == {2}
    assert eventually(lambda: 2 in map(n_filters, daemon.preparers()))
    preparer, fork = daemon.stop_fork()  # it sees no end of its input
    others = {preparer, fork}
    assert {*daemon.processes()} == {worker, *others}
    if victim == "worker":
        daemon.kill_worker()
    else:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
    assert eventually(lambda: not others & {*daemon.processes()})


@pytest.mark.model
@pytest.mark.slow
def test_a_worker_that_writes_nothing_keeps_no_process(tmp_path, make_daemon):
    model = write_tiny_bert(tmp_path / "bert.gguf")
    daemon = make_daemon({"backend": [llamacpp(model)]}).start()
    assert [*daemon.processes()] == daemon.worker_pids()


def threads(pid: int) -> list[int]:
    found = [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]
    assert len(found) > 2
    return found


def n_filters(pid: int) -> int:
    """Count the filters of system calls that it has given itself; 0 if it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        its = int(status(pid)["Seccomp_filters"])
        return its - int(status(os.getpid())["Seccomp_filters"])
    return 0


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (x.partition(":") for x in lines)}


def test_native_libraries_are_imported_by_the_worker_alone():
    importers = {
        module
        for module, tree in modules("|".join(NATIVE))
        if {name.split(".")[0] for name in imports(tree)} & NATIVE
    }
    assert importers
    assert all(module.startswith(ALLOWED) for module in importers)
