"""Cut frames while the n-th allocation fails, in a process for each n.

Either the frames come out whole, or ``MemoryError`` does; after that, what is fed anew is
cut as ever. The framing is tried alone: msgspec's decoder follows null pointers then, so
the daemon's own process is never given a bound on its memory.

    python -m torture.starved 1000
"""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Final

from inferd.wire.framing import LineSplitter

NOT_HERE: Final = 77
DATA: Final = (b'{"id":"a"}\n{"id":"b', b'"}\n\n', b"x" * 5000 + b"\nrest")
FRAMES: Final = [b'{"id":"a"}', b'{"id":"b"}', b"", b"x" * 5000, b"rest"]


def main() -> int:
    """Try allocation after allocation, until one run needs no more."""
    try:
        testcapi = importlib.import_module("_testcapi")
    except ImportError:
        print("needs CPython's _testcapi")
        return NOT_HERE
    n_most = int(sys.argv[1])
    for at in range(1, n_most + 1):
        child = os.fork()
        if child == 0:
            testcapi.set_nomemory(at, at + 1)
            os._exit(_try(testcapi.remove_mem_hooks))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code not in (0, 1):
            print(f"allocation {at}: the process ended with {code}")
            return 1
        if code == 0:
            print(f"{at - 1} allocations failed, one after another: all sound")
            return 0
    print(f"{n_most} allocations failed, one after another: all sound")
    return 0


def _try(heal: Callable[[], object]) -> int:
    """Give 0 if nothing failed, 1 for a clean failure, 2 for anything else."""
    try:
        frames, failed = _cut(), False
    except MemoryError:
        frames, failed = FRAMES, True
    heal()
    is_sound = frames == FRAMES and _cut() == FRAMES
    return (1 if failed else 0) if is_sound else 2


def _cut() -> list[bytes]:
    splitter = LineSplitter()
    frames: list[bytes] = []
    for data in DATA:
        splitter.feed(data)
        while (frame := splitter.next_frame()) is not None:
            frames.append(frame)
    last = splitter.last_frame()
    return frames if last is None else [*frames, last]


if __name__ == "__main__":
    sys.exit(main())
