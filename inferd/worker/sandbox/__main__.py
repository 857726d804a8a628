"""Run a script in the sandbox of a serving worker: ``python -m inferd.worker.sandbox``.

The script and its arguments follow. It runs as a program does, with the permissions of a
llama.cpp worker that is ready: no file can be opened, so the script, modules beside it and
Python's own library are read before. Parts of the sandbox that this machine lacks are
reported on stderr.
"""

import sys
from pathlib import Path
from types import ModuleType

from inferd.config.kinds.kind import Sandbox
from inferd.worker.sandbox import WorkerSandbox, drop_privileges
from inferd.worker.sandbox.preloaded_modules import preload_modules

EXIT_USAGE = 2


def main() -> int:
    """Read the script, enter the sandbox and run it; its exceptions propagate."""
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
    preload_modules(path.resolve().parent)
    enter()
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = str(path)
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = str(path.parent)
    exec(code, module.__dict__)  # noqa: S102  # the purpose of this program
    return 0


def enter() -> None:
    """Enter the sandbox as a llama.cpp worker does, and report missing parts."""
    drop_privileges()
    sandbox = WorkerSandbox()
    report = sandbox.enter_loading(Sandbox.CPU)
    sandbox.enter_serving()
    for missing in report.missing:
        sys.stderr.write(f"missing: {missing}\n")


if __name__ == "__main__":
    sys.exit(main())
