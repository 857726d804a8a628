"""Run a script in the sandbox of the process that reads large lines.

``python tests/fakes/in_decoder.py SCRIPT [ARG...]``, with a socket for stdout: nothing else
can be written to there.
"""

import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from inferd.line_decoder.sandbox import enter_sandbox
from inferd.worker.sandbox.preloaded_modules import preload_modules


def run_in_decoder(*arguments: str | Path, stdin: int = subprocess.DEVNULL) -> str:
    """Have a process of its own run a script with arguments; give what it prints."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, __file__, *map(str, arguments)],
                stdin=stdin,
                stdout=theirs.fileno(),
            )
        with process, ours.makefile() as said:
            return said.read()


def each_call(numbers: Sequence[str]) -> str:
    """Make system calls."""
    return run_in_decoder(Path(__file__).with_name("each_call.py"), "", *numbers)


def main() -> None:
    """Read the script, enter, run it."""
    path = Path(sys.argv[1])
    code = compile(path.read_bytes(), path, "exec")
    preload_modules(path.parent)
    with socket.socket(fileno=1) as out, out.makefile("w") as sys.stdout:
        boxed = enter_sandbox()
        assert boxed.is_complete, boxed.missing
        module = sys.modules["__main__"] = ModuleType("__main__")
        sys.argv[:] = sys.argv[1:]
        exec(code, module.__dict__)  # noqa: S102  # what this program is for


if __name__ == "__main__":
    main()
