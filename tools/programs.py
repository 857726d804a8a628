"""Environments of other people's programs, which tests run against the bridge.

Each file of `tools/environments/` lists what one of them installs, with versions and digests; it
is made in the cache when a test first asks for it. One whose programs are npm's has npm itself
in its file, and what that installs in the directory of the same name.

    python -m tools.programs frameworks      # makes it now; says where its Python is
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.packages import ROOT, WHEELS_ALONE, install_pip, pip
from tools.wheel import cache, say

LISTS: Final = ROOT / "tools" / "environments"
NODE_FILES: Final = ("package.json", "package-lock.json")
NODE_OPTIONS: Final = ("--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund")
STAMP: Final = "inferd-programs"
KEY_CHARS: Final = 16


def main() -> int:
    """Make an environment; print its Python's path."""
    print(program_python(sys.argv[1]))
    return 0


def program_python(name: str) -> Path:
    """Return the Python of an environment; make it first if it is not there.

    Args:
        name: of the file in `tools/environments/`, without its end.
    """
    path = LISTS / f"{name}.txt"
    node_files = [file for each in NODE_FILES if (file := LISTS / name / each).exists()]
    pinned = "".join(file.read_text() for file in (path, *node_files))
    words = f"{pinned}{sys.version}{platform.machine()}"
    key = hashlib.sha256(words.encode()).hexdigest()[:KEY_CHARS]
    directory = cache() / "programs" / f"{name}-{key}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    python = directory / "bin" / "python"
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test may be making it
        if not (directory / STAMP).is_file():
            shutil.rmtree(directory, ignore_errors=True)
            say(f"installing {name} of tools/programs for tests, once")
            venv.create(directory, with_pip=True)
            install_pip(python)
            pip(
                python,
                *("install", "--no-deps", "--require-hashes", *WHEELS_ALONE),
                *("--requirement", str(path)),
            )
            if node_files:
                _add_node_packages(directory, node_files)
            (directory / STAMP).touch()
    return python


def _add_node_packages(directory: Path, files: Sequence[Path]) -> None:
    """Install what a lock file lists, whose digests npm compares, without running any of it."""
    for file in files:
        shutil.copy(file, directory)
    programs = directory / "bin"
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    subprocess.run(
        [str(programs / "npm"), "ci", *NODE_OPTIONS],
        cwd=directory,
        env={**program_environ(), "PATH": path},
        stdout=sys.stderr,
        check=True,
    )


def program_environ() -> dict[str, str]:
    """Return our environment, without the paths of modules of ours."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


if __name__ == "__main__":
    sys.exit(main())
