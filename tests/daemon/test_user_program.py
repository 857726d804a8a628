"""A program as its users write it: checked strictly, and run on threads and both loops."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import clean_environ
from tests.daemon.harness import PATIENCE_S, MakeDaemon, mock
from tests.documents.pages import texts
from tools.programs import program_environ, program_python

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

PROGRAM: Final = Path(__file__).parent / "programs" / "every_call.py"
CHECK_S: Final = 300.0


def test_the_same_program_runs_on_threads_asyncio_trio_and_with_callbacks(
    make_daemon: MakeDaemon,
):
    backend = mock(tokens=["Hel", "lo"], transcribe=True, audio=True)
    daemon = make_daemon({"backend": [backend]}).start()
    with bridge_to(daemon) as bridge:
        ended = subprocess.run(
            [sys.executable, str(PROGRAM), bridge.address],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=clean_environ(),
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    threads, asyncio, trio, called = map(ast.literal_eval, ended.stdout.splitlines())
    assert asyncio == trio == ["Hello", "Hel", "lo", "end_turn", "Hello", "a"]
    assert called == ["Hel", "lo", "Hello"]
    assert threads[:2] == ["Hello", "Hello"]


def test_pyright_finds_nothing_in_it_nor_mypy_nor_in_those_of_the_first_page(
    tmp_path: Path,
):
    snippets = texts("docs/python.md", "python")
    names = []
    for number, program in enumerate([PROGRAM.read_text(), *snippets]):
        names.append(f"program_{number}.py")
        (tmp_path / names[-1]).write_text(program)
    python = program_python("types")
    pyright = python.parents[1] / "node_modules" / "pyright" / "index.js"
    settings = {"typeCheckingMode": "strict", "include": names}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    checks = (
        [str(python.parent / "node"), str(pyright), "--pythonpath", sys.executable],
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file=",
            *names,
        ],
    )
    for check in checks:
        found = subprocess.run(
            check,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=CHECK_S,
            env=program_environ(),
            check=False,
        )
        assert found.returncode == 0, found.stdout + found.stderr
