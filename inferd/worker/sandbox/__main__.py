"""Run a script in the sandbox of a worker that serves: ``python -m inferd.worker.sandbox``.

The script and its arguments follow. It runs as a program does, with what a worker of
llama.cpp has left once it is ready: no file can be opened, so that script, modules beside
it and Python's own library are read before. What is missing of the sandbox on this machine
is said on stderr.
"""

import sys
from pathlib import Path
from types import ModuleType

from inferd.config import LlamaCppSettings
from inferd.worker.sandbox import Sandbox, give_up_privileges
from inferd.worker.sandbox.sources import keep_library

EXIT_USAGE = 2


def main() -> int:
    """Read the script, enter, run it; its exceptions end the process as they would."""
    if len(sys.argv) < 2:  # noqa: PLR2004  # this module, the script
        sys.stderr.write("usage: python -m inferd.worker.sandbox SCRIPT [ARG...]\n")
        return EXIT_USAGE
    path = Path(sys.argv[1])
    try:
        source = path.read_bytes()
    except OSError as error:
        sys.stderr.write(f"{str(path)!a}: {error.strerror}\n")
        return EXIT_USAGE
    code = compile(source, path, "exec")
    keep_library(path.resolve().parent)
    enter()
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = str(path)
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = str(path.parent)
    exec(code, module.__dict__)  # noqa: S102  # what this program is for
    return 0


def enter() -> None:
    """Enter the sandbox as a worker of llama.cpp does, and say what is missing of it."""
    give_up_privileges()
    sandbox = Sandbox()
    boxed = sandbox.enter(LlamaCppSettings(name="audit"))
    sandbox.begin_serving()
    for missing in boxed.missing:
        sys.stderr.write(f"not held: {missing}\n")


if __name__ == "__main__":
    sys.exit(main())
