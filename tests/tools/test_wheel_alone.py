"""The project's own wheel and sources: how they are built, and what a user installs."""

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
from tools.programs import program_environ, program_python
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


def build(source: Path, kinds: str, target: Path) -> dict[str, Path]:
    """Build a wheel, sources or both with the pinned hatchling; give them by their ends."""
    words = [word for kind in kinds.split() for word in ("-t", kind)]
    subprocess.run(
        [program_python("packages"), "-m", "hatchling", "build", *words, "-d", target],
        cwd=source,
        env={**program_environ(), "SOURCE_DATE_EPOCH": "1700000000"},
        check=True,
        capture_output=True,
        timeout=COMMAND_S,
    )
    return {path.suffix: path for path in target.iterdir()}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What would be uploaded to a registry, by the ends of the names."""
    return build(ROOT, "sdist wheel", tmp_path_factory.mktemp("packages"))


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


def test_serve_says_which_extra_to_add_and_the_command_for_it(environment: Path):
    python = environment / "bin" / "python"
    served = subprocess.run(
        [environment / "bin" / "inferd", "serve"],
        env={"HOME": str(environment), "XDG_RUNTIME_DIR": str(environment)},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert served.returncode == 2
    error = served.stderr.splitlines()[-1]
    assert error == (
        "error: backend chat: kind llamacpp needs inferd's extra llama, and llama_cpp is "
        f"not installed; run: {python} -m pip install 'inferd[llama]'"
    )


def test_registries_and_checkers_find_nothing_wrong(packages: dict[str, Path]):
    programs = program_python("packages").parent
    files = list(map(str, packages.values()))
    for words in (
        [str(programs / "twine"), "check", "--strict", *files],
        [str(programs / "check-wheel-contents"), str(packages[".whl"])],
    ):
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARN" not in done.stdout.upper()


def test_the_sources_build_the_same_wheel_and_two_builds_the_same_bytes(
    packages: dict[str, Path], tmp_path: Path
):
    subprocess.run(["tar", "-xzf", packages[".gz"], "-C", tmp_path], check=True)
    [source] = tmp_path.iterdir()
    again = build(source, "wheel", tmp_path / "again")
    assert again[".whl"].read_bytes() == packages[".whl"].read_bytes()
    sources = build(ROOT, "sdist", tmp_path / "sources")
    assert sources[".gz"].read_bytes() == packages[".gz"].read_bytes()
