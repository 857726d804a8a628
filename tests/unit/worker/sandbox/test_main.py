import json
import subprocess
import sys
from pathlib import Path

import pytest

from inferd.worker.sandbox.__main__ import main

SCRIPT = """
import json
import os
import sys
import threading
from pathlib import Path
import wsgiref.util
import beside

def attempt(what):
    try:
        what()
    except OSError as error:
        return error.errno
    return 0

said = {
    "arguments": sys.argv,
    "name": __name__,
    "file": __file__,
    "beside": beside.VALUE,
    "a thread": attempt(threading.Thread(target=int).start),
    "its own file": attempt(lambda: open(__file__)),
    "a name": attempt(lambda: os.stat("/")),
    "a folder": attempt(lambda: os.listdir(Path(__file__).parent)),
    "a process": attempt(os.fork),
    "filters": int(sys.argv[1]),
}
print(json.dumps(said))
sys.exit(7)
"""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "inferd.worker.sandbox", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_a_script_runs_as_a_program_with_what_a_serving_worker_has(tmp_path):
    script = tmp_path / "audit.py"
    script.write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("VALUE = 5\n")
    done = run(script, "3", "-x")
    assert (done.returncode, done.stderr) == (7, "")
    assert json.loads(done.stdout) == {
        "arguments": [str(script), "3", "-x"],
        "name": "__main__",
        "file": str(script),
        "beside": 5,
        "a thread": 0,
        "its own file": 1,
        "a name": 1,
        "a folder": 1,
        "a process": 1,
        "filters": 3,
    }


@pytest.mark.slow
def test_an_exception_ends_it_as_it_ends_a_program(tmp_path):
    script = tmp_path / "audit.py"
    script.write_text("1 / 0\n")
    done = run(script)
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_without_a_script_nothing_runs(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["sandbox"])
    assert main() == 2
    assert capsys.readouterr().err.startswith("usage: python -m inferd.worker.sandbox")
    monkeypatch.setattr(sys, "argv", ["sandbox", str(tmp_path / "a\nb.py")])
    assert main() == 2
    assert capsys.readouterr().err.endswith("a\\nb.py': No such file or directory\n")
