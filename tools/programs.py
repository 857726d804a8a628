"""Environments of other people's programs, which tests run against the bridge.

Each file of `tools/environments/` lists what one of them installs, with versions and digests; it
is made in the cache when a test first asks for it.

    python -m tools.programs frameworks      # makes it now; says where its Python is
"""

import fcntl
import hashlib
import os
import platform
import shutil
import sys
import venv
from pathlib import Path
from typing import Final

from tools.packages import ROOT, WHEELS_ALONE, install_pip, pip
from tools.wheel import cache, say

LISTS: Final = ROOT / "tools" / "environments"
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
    words = f"{path.read_text()}{sys.version}{platform.machine()}"
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
            (directory / STAMP).touch()
    return python


def program_environ() -> dict[str, str]:
    """Return our environment, without the paths of modules of ours."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


if __name__ == "__main__":
    sys.exit(main())
