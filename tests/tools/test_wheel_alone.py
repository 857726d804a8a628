"""The project's own wheel in an empty environment, as a user of the client installs it."""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from tools.packages import (
    BUILDING,
    CHECKED,
    ROOT,
    WHEELS_ALONE,
    install_pip,
    pip,
    requirements_file,
)
from tools.wheel import say

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

COMMAND_S: Final = 120.0
WHEEL_BYTES: Final = 3 * 1024 * 1024
"""Most bytes of the wheel; it has 1.6 million."""
INSTALLED_BYTES: Final = 32 * 1024 * 1024
"""Most bytes of all that is installed, compiled by pip, without pip itself: it is 23 million."""
NEEDS_AN_EXTRA: Final = ("llama_cpp", "pywhispercpp", "numpy", "av", "hypercorn")
PROGRAM: Final = """
import importlib.util, sys
from inferd.client import AsyncClient, Client, NoDaemonError
found = [name for name in {extras!r} if importlib.util.find_spec(name)]
try:
    Client("/nowhere").chat("hi")
except NoDaemonError as error:
    print("told:", error)
sys.exit(f"an extra is installed: {{found}}" if found else 0)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, with the pinned tools that build it."""
    folder = tmp_path_factory.mktemp("wheel")
    words = ("wheel", "--no-deps", *BUILDING, "--wheel-dir", str(folder), str(ROOT))
    pip(Path(sys.executable), *words)
    [built] = folder.glob("inferd-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it needs, installed without any compiler."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=True)
    install_pip(directory / "bin" / "python")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    began = monotonic()
    line = f"inferd @ {wheel.as_uri()} --hash=sha256:{digest}\n"
    with requirements_file(line) as file, pytest.MonkeyPatch.context() as changed:
        changed.setenv("PATH", str(directory / "bin"))
        pip(
            directory / "bin" / "python",
            *("install", *CHECKED, *WHEELS_ALONE, "--requirement", str(file)),
        )
    took_s = monotonic() - began
    size = n_bytes(directory)
    say(f"{took_s:.1f} s, {size / 1e6:.1f} MB, wheel {wheel.stat().st_size / 1e6:.1f}")
    return directory


def n_bytes(directory: Path) -> int:
    """Count the bytes of the packages of an environment, pip's left out."""
    [site] = directory.glob("lib/python*/site-packages")
    files = (each for each in site.rglob("*") if each.is_file())
    return sum(
        each.stat().st_size
        for each in files
        if not each.relative_to(site).parts[0].startswith(("pip", "setuptools"))
    )


def run(environment: Path, *words: str) -> str:
    done = subprocess.run(
        [str(environment / "bin" / words[0]), *words[1:]],
        env={"PATH": str(environment / "bin"), "HOME": os.environ["HOME"]},
        cwd=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_and_what_it_needs_are_small(wheel: Path, environment: Path):
    assert wheel.stat().st_size <= WHEEL_BYTES
    assert n_bytes(environment) <= INSTALLED_BYTES


def test_the_client_and_the_command_run_with_nothing_else_installed(environment: Path):
    program = PROGRAM.format(extras=NEEDS_AN_EXTRA)
    assert "told: " in run(environment, "python", "-I", "-W", "error", "-c", program)
    assert run(environment, "inferd", "--version").startswith("inferd ")
