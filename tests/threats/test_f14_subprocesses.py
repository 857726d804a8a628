import ast
import re
import sys
from pathlib import Path

import pytest

from tests.daemon.harness import mock
from tests.fakes.source import calls, imports, modules, names, tree_of

DAEMON = {"engine/supervisor/spawn.py", "engine/supervisor/spawner.py"}
"""The only modules of the daemon that start processes: workers, and what starts those with a
network."""
COMMANDS = {
    *("cli/own_daemon.py", "models/pull/process.py"),
    *("models/packages/confined.py", "models/packages/programs.py"),
    *("doctor/service.py", "service/units.py"),
}
"""Modules that only commands of a person use."""
OF_THE_BRIDGE = {
    *("bridge/media/fork_server.py", "management/pulls.py"),
    *("bridge/chats/tools/confined.py", "tool_host/protocol.py"),
}
"""Modules of the HTTP bridge and of its helper, which are processes of their own."""
BECOMING = {"downloader/confine.py", "cli/fleet/serve.py"}
"""Become another program: pip, a converter or what unpacks, once they are confined; and smg, the
entry of a fleet, in place of the command that a person typed."""
THREADS = {"cli/batch/ordered.py", "client/contract/engine.py"}
"""Have threads of `concurrent.futures`, and no processes."""
ALLOWED = {*DAEMON, *COMMANDS, *OF_THE_BRIDGE}
USED_BY_COMMANDS = ("cli/", "doctor/", "management/", "models/", "service/")
FORKING = (
    *("media_decoder/__main__.py", "worker/llama/prepare/fork_server.py"),
    "worker/spawner/children.py",
)
"""Go on as two of themselves, and start nothing."""
CALLS = (
    r"\b(os\.(fork\w*|exec\w+|spawn\w+|posix_spawn\w*|popen|system)"
    r"|run_process|open_process|pty\.\w+|ctypes\.\w+\.system)"
)
SPAWNING = re.compile(f"{CALLS}$")
STARTING = ("subprocess.run", "subprocess.Popen", "trio.lowlevel.open_process")
LIBRARIES = {"subprocess", "multiprocessing", "pty", "concurrent", "pexpect"}
WRITTEN = re.compile(
    rf"{CALLS}|import .*\b({'|'.join(LIBRARIES)})\b|from ({'|'.join(LIBRARIES)})\b"
)


def spawns(tree: ast.AST) -> bool:
    roots = {name.split(".")[0] for name in imports(tree)}
    return bool(roots & LIBRARIES) or any(map(SPAWNING.search, names(tree)))


def test_processes_are_started_and_forked_in_known_places():
    assert {module for module, tree in modules(WRITTEN) if spawns(tree)} == {
        *ALLOWED,
        *BECOMING,
        *FORKING,
        *THREADS,
    }


@pytest.mark.parametrize("module", sorted(THREADS))
def test_what_has_threads_starts_no_process(module):
    tree = tree_of(module)
    roots = {name.split(".")[0] for name in imports(tree)}
    assert roots & LIBRARIES == {"concurrent"}
    assert not any(map(SPAWNING.search, names(tree)))
    assert not [name for name in names(tree) if "ProcessPool" in name]


@pytest.mark.parametrize("module", sorted(COMMANDS))
def test_the_daemon_does_not_import_what_starts_processes_for_commands(module):
    name = "inferd." + module.removesuffix(".py").replace("/", ".")
    last = name.rpartition(".")[2]
    users = {each for each, tree in modules(last) if name in {*imports(tree)}}
    assert [each for each in users if not each.startswith(USED_BY_COMMANDS)] == []


@pytest.mark.parametrize("module", FORKING)
def test_what_forks_starts_nothing(module):
    assert not {name.split(".")[0] for name in imports(tree_of(module))} & LIBRARIES
    spawning = filter(SPAWNING.search, names(tree_of(module)))
    assert {*spawning} == {"os.fork"}


@pytest.mark.parametrize(
    "text", ["import subprocess", "os.fork()", "os.execv", "trio.run_process(x)"]
)
def test_the_search_would_find_another(text):
    assert spawns(ast.parse(text))


@pytest.mark.parametrize("module", sorted(ALLOWED))
def test_no_process_is_started_through_a_shell_or_from_a_string(module):
    started = list(calls(tree_of(module), *STARTING))
    assert started
    for call in started:
        assert "shell" not in {keyword.arg for keyword in call.keywords}
        assert isinstance(call.args[0], ast.List | ast.Name)


@pytest.mark.slow
def test_a_workers_command_line_is_this_python_and_two_numbers(make_daemon):
    daemon = make_daemon({"backend": [mock()]})
    daemon.command = [*daemon.command]  # not a fork, whose workers would be forks, too
    [pid] = daemon.start().worker_pids()
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    assert words[:4] == [sys.executable.encode(), b"-P", b"-m", b"inferd.worker.mock"]
    assert [word.isdigit() for word in words[4:]] == [True, True]
