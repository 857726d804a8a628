"""A preparer: ``python -m inferd.worker.llama.prepare.fork_server FD PARENT_PID``.

The daemon starts it beside a worker, which may not start processes, and restarts it if it
ends. It receives the model's prompt format and vocabulary, builds the shared state once, and
forks. The fork serves one job and exits; kernel limits kill it if the job takes too much. So
nothing of one user's job is left for the next one, and the next fork starts at once with the
shared state. The parent reports each exit on stdout, which forks do not have open, so no fork
can receive a job that is not its own.
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

from inferd.backend.job import RenderedJob
from inferd.dialects.prompt.renderer import PromptRenderer
from inferd.ipc.encoding import LENGTH_BYTES, decode_to_preparer, encode
from inferd.ipc.preparer import (
    FORK_EXITED,
    CompilingGrammar,
    Configure,
    ForkExited,
    FromPreparer,
    JobReceived,
    Ready,
    Render,
    Rendered,
    RenderFailed,
    RenderRefused,
    ToPreparer,
)
from inferd.limits.worker import (
    GRAMMAR_COMPILE_BYTES,
    GRAMMAR_COMPILE_S,
    GRAMMAR_COMPILE_STACK_BYTES,
    RENDER_CPU_S,
    RENDER_CPU_S_PER_MIB,
    RENDER_TOTAL_CPU_S,
    TEMPLATE_MEMORY_BYTES,
)
from inferd.sandbox.pdeathsig import die_with_parent
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.compiler import tokenizer_of
from inferd.worker.llama.prepare.model_info import (
    decode_prompt_format,
    decode_token_table,
    prompts_of,
)
from inferd.worker.llama.prepare.write import GrammarWriter, write_prompt
from inferd.worker.process_memory import address_space_bytes, open_early
from inferd.worker.sandbox import drop_privileges, enter_preparing, enter_rendering

EXIT_DAEMON_GONE: Final = 9
"""Exit code of a fork that found the daemon's socket closed."""
_MIB: Final = 1024 * 1024
_STDOUT: Final = 1


class SharedState(NamedTuple):
    """State that all forks share."""

    prompts: PromptRenderer
    grammars: GrammarWriter | None
    """``None`` if the daemon sent no vocabulary."""


class DaemonChannel:
    """Messages to and from the daemon; reads no byte beyond the end of a message."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, message: FromPreparer) -> None:
        """Send a message."""
        self._sock.sendall(encode(message))

    def receive(self) -> tuple[ToPreparer, int] | None:
        """Wait for a message; return it and its size, or ``None`` at end of file."""
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


def build_shared_state(message: Configure) -> SharedState:
    """Build the state that the forks share."""
    prompts = prompts_of(decode_prompt_format(message.prompt_format))
    prompts.warm_up()
    if not message.token_table:
        return SharedState(prompts, None)
    token_table = decode_token_table(message.token_table)
    grammars = GrammarWriter(prompts, token_table, tokenizer_of(token_table))
    grammars.warm_up()
    return SharedState(prompts, grammars)


def serve(channel: DaemonChannel, shared: SharedState) -> None:
    """Fork for each job; does not return in the parent.

    Raises:
        SystemExit: the daemon is gone, or a fork exited before it had received a job. That
            may happen again, and the fork may have read part of a message.
    """
    gc.freeze()  # so that garbage collection copies no pages in forks
    parent = os.getpid()
    has_job = mmap.mmap(-1, 1)  # shared with the fork, which sets it
    while process := os.fork():
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == EXIT_DAEMON_GONE:
            sys.exit(0)
        if not has_job[0]:
            sys.exit(1)
        if code:
            channel.send(ForkExited(code=code))
        os.write(_STDOUT, FORK_EXITED)
        has_job[0] = 0
    os.close(_STDOUT)
    die_with_parent(parent)
    open_early()
    enter_rendering()
    serve_one(channel, shared, has_job)


def serve_one(channel: DaemonChannel, shared: SharedState, has_job: mmap.mmap) -> None:
    """Serve one job and end this process."""
    received = channel.receive()
    if received is None:
        os._exit(EXIT_DAEMON_GONE)
    asked, n_bytes = received
    assert isinstance(asked, Render)  # noqa: S101  # the daemon is trusted
    has_job[0] = 1
    channel.send(JobReceived(ticket=asked.ticket))
    limit_job(n_bytes)
    channel.send(response_to(asked, shared, channel.send))
    os._exit(0)  # without cleanup, which the job could influence


def response_to(
    asked: Render, shared: SharedState, send: Callable[[FromPreparer], None]
) -> FromPreparer:
    """Render a job's prompt and grammar, or explain why that failed."""
    ticket = asked.ticket
    try:
        return _render(asked, shared, send)
    except RefusedError as error:
        return RenderRefused(ticket=ticket, reason=str(error))
    except MemoryError:
        return RenderRefused(ticket=ticket, reason="rendering it takes too much memory")
    except RecursionError:
        return RenderRefused(ticket=ticket, reason="it is nested too deeply")
    except Exception as error:  # noqa: BLE001  # one bad job must not end the process
        traceback.print_exc()
        name = type(error).__name__
        return RenderFailed(ticket=ticket, reason=f"preparing it failed with {name}")


def _render(
    asked: Render, shared: SharedState, send: Callable[[FromPreparer], None]
) -> FromPreparer:
    if asked.job.input_tokens:
        written = RenderedJob(pieces=())
    else:
        written = write_prompt(shared.prompts, asked.job)
    if shared.grammars is None:
        return Rendered(ticket=asked.ticket, rendered=written)
    reported: list[str] = []

    def report(where: str) -> None:
        if reported[-1:] != [where]:
            reported.append(where)
            send(CompilingGrammar(ticket=asked.ticket, field=where))
        limit_compile()

    checker = shared.grammars.make_checker(asked.known_grammars, report)
    grammar = shared.grammars.write(
        asked.job, checker, open_thought=written.open_thought
    )
    return Rendered(
        ticket=asked.ticket,
        rendered=msgspec.structs.replace(written, grammar=grammar),
        compiled_grammars=tuple(checker.passed),
    )


# --- kernel limits ---------------------------------------------------


def limit_job(n_bytes: int) -> None:
    """Limit processor time and memory for a job of ``n_bytes``."""
    more_s = RENDER_CPU_S_PER_MIB * n_bytes / _MIB
    signal.setitimer(signal.ITIMER_PROF, RENDER_CPU_S + more_s)
    _limit(resource.RLIMIT_CPU, int(RENDER_TOTAL_CPU_S + more_s))
    _limit(resource.RLIMIT_AS, address_space_bytes() + TEMPLATE_MEMORY_BYTES)


def limit_compile() -> None:
    """Limit processor time, memory and stack for the next compilation."""
    signal.setitimer(signal.ITIMER_PROF, GRAMMAR_COMPILE_S)
    _limit(resource.RLIMIT_STACK, GRAMMAR_COMPILE_STACK_BYTES)
    _limit(resource.RLIMIT_AS, address_space_bytes() + GRAMMAR_COMPILE_BYTES)


def _limit(what: int, bound: int) -> None:
    """Lower a soft limit; one that is already lower stays."""
    soft, hard = resource.getrlimit(what)
    bounds = [each for each in (soft, hard, bound) if each != resource.RLIM_INFINITY]
    resource.setrlimit(what, (min(bounds), hard))


def main() -> None:
    """Receive the configuration, and serve until the daemon is gone."""
    fd, parent_pid = map(int, sys.argv[1:3])
    die_with_parent(parent_pid)
    drop_privileges()
    enter_preparing()
    channel = DaemonChannel(socket.socket(fileno=fd))
    received = channel.receive()
    if received is None or not isinstance(received[0], Configure):
        sys.exit(0)
    shared = build_shared_state(received[0])
    channel.send(Ready())
    serve(channel, shared)


if __name__ == "__main__":
    main()
