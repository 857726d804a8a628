"""The import contracts hold, and each of them fails when it is broken."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BREACHES = [
    (
        "server/daemon.py",
        "import llama_cpp",
        "Only the worker loads the native libraries",
    ),
    ("admission/control.py", "import time", "Pure stages do no I/O and read no clock"),
    (
        "output/utf8.py",
        "from inferd.server import daemon",
        "A package imports only those below it",
    ),
    (
        "extra.py",
        '"""A module without a place."""',
        "A package imports only those below",
    ),
    ("engine/engine.py", "import inferd.worker.channel", "The worker runs alone"),
    ("server/daemon.py", "import inferd.sandbox.seccomp", "A process confines itself"),
    (
        "cli/models/pull.py",
        "import inferd.downloader.fetch",
        "The downloader runs alone",
    ),
    ("bridge/serve.py", "import inferd.routing", "The bridge is a client"),
    ("bridge/openai/api.py", "import starlette", "The HTTP libraries"),
    ("bridge/serve.py", "import PIL", "What decodes media runs alone"),
    (
        "worker/runtime.py",
        "import trio",
        "Neither workers with a model, decoders nor downloader run on trio",
    ),
    (
        "cli/commands/serve.py",
        "import inferd.models.convert",
        "The converter runs alone",
    ),
]

OF_LAYERS = [each for each in BREACHES if "imports only those below" in each[2]]
OTHERS = [each for each in BREACHES if each not in OF_LAYERS]
TOGETHER = [OTHERS, *([each] for each in OF_LAYERS)]
"""Breaches of one copy: an import takes half a second to be seen. The two that break the
contract of layers have a copy each, or one could go unseen behind the other."""


@pytest.fixture
def copy(tmp_path):
    """A copy of the package with the contracts."""
    no_cache = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "inferd", tmp_path / "inferd", ignore=no_cache)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def broken_contracts(directory: Path) -> list[str]:
    """Check a copy; give the names of the contracts that it breaks."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    result = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=120, check=False
    )
    names = re.findall(r"^(.+) BROKEN\b", result.stdout, re.MULTILINE)
    assert bool(names) == bool(result.returncode), result.stdout + result.stderr
    return names


@pytest.mark.slow
def test_the_contracts_hold(copy):
    assert broken_contracts(copy) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "breaches", TOGETHER, ids=["all but layers", "layers", "place"]
)
def test_a_breach_is_seen(copy, breaches):
    """No breach of one copy breaks the contract of another one, as each is of one module."""
    for module, line, _ in breaches:
        with (copy / "inferd" / module).open("a") as file:
            file.write(f"\n{line}\n")
    broken = broken_contracts(copy)
    for _, _, contract in breaches:
        assert any(name.startswith(contract) for name in broken), contract
