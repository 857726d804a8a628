import os
import signal
import sys
import tracemalloc

import pytest

from inferd.models.packages import confined
from inferd.models.packages.confined import (
    Confinement,
    LastLines,
    ProgramError,
    run_confined,
)
from inferd.models.pull.errors import PullError

LONG_S = 600.0
FORKS = """
import os, signal, sys
reads, writes = os.pipe()
if os.fork():
    os.close(writes)
    os.read(reads, 1)
    {parent}
else:
    held = open(sys.argv[1], "w")
    try:
        os.setsid()
        held.write("left")
    except PermissionError:
        held.write("stayed")
    held.flush()
    os.write(writes, b"x")
    signal.pause()
"""
"""A program whose child keeps its output open, and a FIFO, and goes on for ever."""


@pytest.fixture
def fifo(tmp_path):
    """A FIFO in the directory of the program, and its end to read."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "fifo").chmod(0o666)  # root's program is another user
    descriptor = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "r") as file:
        yield file


def run(script, tmp_path, limit_s=LONG_S):
    run_confined(
        (sys.executable, "-c", script, str(tmp_path / "fifo")),
        Confinement(tmp_path, limit_s),
        {"PATH": os.environ["PATH"]},
        {},
    )


@pytest.mark.slow
def test_a_child_that_wants_to_leave_ends_with_its_program(tmp_path, fifo):
    run(FORKS.format(parent="print('done')"), tmp_path)
    assert fifo.read() == "stayed"  # and the end, which is that of the child


@pytest.mark.slow
def test_a_failure_is_told_although_a_child_goes_on(tmp_path, fifo):
    with pytest.raises(ProgramError) as caught:
        run(FORKS.format(parent="print('why'); sys.exit(1)"), tmp_path)
    assert caught.value.output == ["why"]
    assert fifo.read() == "stayed"


@pytest.mark.slow
def test_the_limit_holds_for_a_program_whose_child_has_left(tmp_path, monkeypatch):
    """As on a kernel that has no filters of system calls; the time is over once it left."""
    left = tmp_path / "left"
    script = f"""
import os, pathlib, signal
if os.fork() == 0:
    os.setsid()
    pathlib.Path({str(tmp_path / "new")!r}).write_text(str(os.getpid()))
    os.rename({str(tmp_path / "new")!r}, {str(left)!r})
    print("left", flush=True)
signal.pause()
"""
    monkeypatch.setattr(confined, "_CONFINE", ("-c", script))

    class Clock:
        monotonic = staticmethod(lambda: LONG_S if left.exists() else 0.0)

    monkeypatch.setattr(confined, "time", Clock)
    with pytest.raises(PullError, match="took over 600 s and was ended"):
        run("", tmp_path)
    os.kill(int(left.read_text()), signal.SIGKILL)


def test_the_last_lines_are_kept_and_no_more(capsys):
    lines = LastLines()
    tracemalloc.start()
    try:
        for _ in range(1000):
            lines.add(bytes(range(32, 127)) * 600)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1024 * 1024
    lines.add(b"\nnote: the sandbox is weaker: no kernel\n\xff\n")
    lines.add("".join(f"line {n}\r\n" for n in range(30)).encode() + b"li")
    lines.add(b"ne 30")
    assert lines.end() == [f"line {n}" for n in range(11, 31)]
    assert capsys.readouterr().err == "note: the sandbox is weaker: no kernel\n"
