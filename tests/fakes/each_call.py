"""Make system calls one by one inside a worker's sandbox, and say what the kernel answers.

``python tests/fakes/each_call.py STAGE FIRST NUMBER...`` enters, or is run by a process
that has entered where STAGE is empty, and prints a line for each number from the FIRST of
them on: the number and the error, 0 for none. Arguments are invalid: descriptors of -1 and
pointers to nothing. A call that ends the process has no line.
"""

import ctypes
import sys

ARGUMENTS = (-1, 0, 0, 0, 0, 0)


def main() -> None:
    """Enter and call."""
    stage, *numbers = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if stage:
        enter(stage)
    for number in map(int, numbers):
        ctypes.set_errno(0)
        said = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, ARGUMENTS))
        error = ctypes.get_errno() if said == -1 else 0
        print(number, error, flush=True)  # noqa: T201  # a program


def enter(stage: str) -> None:
    """Enter the sandbox of a worker that loads, or that serves."""
    from inferd.config.kinds.kind import Sandbox  # noqa: PLC0415
    from inferd.worker.sandbox import WorkerSandbox, drop_privileges  # noqa: PLC0415

    drop_privileges()
    sandbox = WorkerSandbox()
    sandbox.enter_loading(
        Sandbox.ACCELERATED if stage == "accelerated" else Sandbox.CPU
    )
    if stage == "serving":
        sandbox.enter_serving()


if __name__ == "__main__":
    main()
