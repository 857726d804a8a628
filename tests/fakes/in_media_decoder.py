"""Run a script in the sandbox of the processes that decode media.

``python tests/fakes/in_media_decoder.py SCRIPT [ARG...]``.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from inferd.media_decoder.messages import DecodeMedium
from inferd.media_decoder.sandbox import enter_decoding, enter_forking
from inferd.worker.sandbox.preloaded_modules import preload_modules

TASK = DecodeMedium(kind="picture", max_pixels=1, max_bytes=2**20, max_cpu_s=60)


def run_in_media_decoder(
    *arguments: str | Path, stdin: int = subprocess.DEVNULL
) -> str:
    """Have a process of its own run a script with arguments; give what it prints."""
    return subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=120,
    ).stdout


def main() -> None:
    """Read the script, enter, run it."""
    path = Path(sys.argv[1])
    code = compile(path.read_bytes(), path, "exec")
    preload_modules(path.parent)
    missing = enter_forking(os.getppid())
    assert not missing, missing
    enter_decoding(TASK)
    module = sys.modules["__main__"] = ModuleType("__main__")
    sys.argv[:] = sys.argv[1:]
    exec(code, module.__dict__)  # noqa: S102  # what this program is for


if __name__ == "__main__":
    main()
