"""A preparer: ``python -m inferd.worker.llama.preparer FD PARENT_PID``.

The daemon starts it beside a worker, which is not allowed to start processes, and replaces
it. It learns what the model wants, builds what takes long to build, and forks. The fork
serves one job and ends; the kernel ends it sooner where that takes more than it may. So
nothing of a job is left for the next one, which is another user's, and the next fork is
there at once, with all that was built. Each end is told on stdout, which no fork has, so
that none can read another job than its own.
"""

import gc
import mmap
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from inferd.dialects.prompts import Prompts
from inferd.pipe import LENGTH_BYTES, decode_to_preparer, encode
from inferd.preparing import (
    A_FORK_ENDED,
    Broken,
    Ended,
    FromPreparer,
    Learn,
    Ready,
    Took,
    ToPreparer,
    Trying,
    Unwritable,
    Write,
    Wrote,
)
from inferd.sandbox.parent import die_with
from inferd.worker.backend import RefusedError
from inferd.worker.limits import (
    GRAMMAR_COMPILE_BYTES,
    GRAMMAR_COMPILE_S,
    GRAMMAR_COMPILE_STACK_BYTES,
    TEMPLATE_MEMORY_BYTES,
    WRITE_S,
    WRITE_S_PER_MIB,
    WRITE_TOTAL_S,
)
from inferd.worker.llama.compiler import tokenizer_of
from inferd.worker.llama.facts import decode_facts, decode_words, prompts_of
from inferd.worker.llama.writing import Grammars, write_prompt
from inferd.worker.memory import address_space_bytes, hold_open
from inferd.worker.sandbox import begin_writing, enter_preparer, give_up_privileges

EXIT_DONE: Final = 9
"""Of a fork that has found the daemon gone."""
_MIB: Final = 1024 * 1024
_STDOUT: Final = 1


class Learnt(NamedTuple):
    """What is built once."""

    prompts: Prompts
    grammars: Grammars | None
    """Nothing where no vocabulary was told."""


class Line:
    """Messages to and from the daemon, read no further than to the end of one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, message: FromPreparer) -> None:
        """Send one message whole."""
        self._sock.sendall(encode(message))

    def receive(self) -> tuple[ToPreparer, int] | None:
        """Wait for a message; give it and its bytes, or nothing once the daemon is gone."""
        header = self._read(LENGTH_BYTES)
        payload = self._read(int.from_bytes(header, "little")) if header else b""
        return (decode_to_preparer(payload), len(payload)) if payload else None

    def _read(self, n_bytes: int) -> bytearray:
        data = bytearray(n_bytes)
        view = memoryview(data)
        while view:
            if not (n_read := self._sock.recv_into(view)):
                return bytearray()
            view = view[n_read:]
        return data


def learnt(message: Learn) -> Learnt:
    """Build what the forks share."""
    prompts = prompts_of(decode_facts(message.facts))
    prompts.warm_up()
    if not message.words:
        return Learnt(prompts, None)
    words = decode_words(message.words)
    grammars = Grammars(prompts, words, tokenizer_of(words))
    grammars.warm_up()
    return Learnt(prompts, grammars)


def serve(line: Line, known: Learnt) -> None:
    """Fork for each job; returns in the forks alone.

    Raises:
        SystemExit: the daemon is gone; or a fork ended that had no job, as the next might,
            and may have read a part of one.
    """
    gc.freeze()  # so that collecting copies no pages
    parent = os.getpid()
    has_job = mmap.mmap(-1, 1)  # which the fork tells
    while process := os.fork():
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == EXIT_DONE:
            sys.exit(0)
        if not has_job[0]:
            sys.exit(1)
        if code:
            line.send(Ended(code=code))
        os.write(_STDOUT, A_FORK_ENDED)
        has_job[0] = 0
    os.close(_STDOUT)
    die_with(parent)
    hold_open()
    begin_writing()
    serve_one(line, known, has_job)


def serve_one(line: Line, known: Learnt, has_job: mmap.mmap) -> None:
    """Serve one job and end this process."""
    received = line.receive()
    if received is None:
        os._exit(EXIT_DONE)
    asked, n_bytes = received
    assert isinstance(asked, Write)  # noqa: S101  # the daemon is trusted
    has_job[0] = 1
    line.send(Took(ticket=asked.ticket))
    bound_all(n_bytes)
    line.send(answer_to(asked, known, line.send))
    os._exit(0)  # whatever is left of the job is not looked at any more


def answer_to(
    asked: Write, known: Learnt, send: Callable[[FromPreparer], None]
) -> FromPreparer:
    """Write what a job asks for, or say why it cannot be."""
    ticket = asked.ticket
    try:
        return _wrote(asked, known, send)
    except RefusedError as error:
        return Unwritable(ticket=ticket, reason=str(error))
    except MemoryError:
        return Unwritable(ticket=ticket, reason="writing it takes too much memory")
    except RecursionError:
        return Unwritable(ticket=ticket, reason="it is nested too deeply")
    except Exception as error:  # noqa: BLE001  # one bad job is not the others' end
        traceback.print_exc()
        name = type(error).__name__
        return Broken(ticket=ticket, reason=f"preparing it failed with {name}")


def _wrote(
    asked: Write, known: Learnt, send: Callable[[FromPreparer], None]
) -> FromPreparer:
    written = write_prompt(known.prompts, asked.job)
    if known.grammars is None:
        return Wrote(ticket=asked.ticket, written=written)
    told: list[str] = []

    def tell(where: str) -> None:
        if told[-1:] != [where]:
            told.append(where)
            send(Trying(ticket=asked.ticket, where=where))
        bound_compiling()

    trial = known.grammars.trial(asked.known, tell)
    grammar = known.grammars.write(asked.job, trial, open_thought=written.open_thought)
    return Wrote(
        ticket=asked.ticket,
        written=msgspec.structs.replace(written, grammar=grammar),
        tried=tuple(trial.passed),
    )


# --- bounds, which the kernel keeps ---------------------------------------------------


def bound_all(n_bytes: int) -> None:
    """Bound the processor time and the memory of a job of so many bytes."""
    more_s = WRITE_S_PER_MIB * n_bytes / _MIB
    signal.setitimer(signal.ITIMER_PROF, WRITE_S + more_s)
    _limit(resource.RLIMIT_CPU, int(WRITE_TOTAL_S + more_s))
    _limit(resource.RLIMIT_AS, address_space_bytes() + TEMPLATE_MEMORY_BYTES)


def bound_compiling() -> None:
    """Bound the processor time, the memory and the stack of what is compiled next."""
    signal.setitimer(signal.ITIMER_PROF, GRAMMAR_COMPILE_S)
    _limit(resource.RLIMIT_STACK, GRAMMAR_COMPILE_STACK_BYTES)
    _limit(resource.RLIMIT_AS, address_space_bytes() + GRAMMAR_COMPILE_BYTES)


def _limit(what: int, bound: int) -> None:
    """Lower a limit; one that is lower already stays."""
    soft, hard = resource.getrlimit(what)
    bounds = [each for each in (soft, hard, bound) if each != resource.RLIM_INFINITY]
    resource.setrlimit(what, (min(bounds), hard))


def main() -> None:
    """Learn, and serve until the daemon is gone."""
    fd, parent_pid = map(int, sys.argv[1:3])
    die_with(parent_pid)
    give_up_privileges()
    enter_preparer()
    line = Line(socket.socket(fileno=fd))
    received = line.receive()
    if received is None or not isinstance(received[0], Learn):
        sys.exit(0)
    known = learnt(received[0])
    line.send(Ready())
    serve(line, known)


if __name__ == "__main__":
    main()
