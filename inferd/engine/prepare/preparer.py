"""The preparer: renders prompts that are not plain in a process that can be killed.

The process is started for the first such job, and again when it is gone. Its death affects
no worker, and no job but the one that it was rendering.
"""

import signal
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import count
from typing import Final

import trio

from inferd.backend.caller import is_principal, sharer_of
from inferd.backend.job import NO_UID, GenerateJob, RenderedJob
from inferd.engine.channel.demultiplexer import WorkerDiedError
from inferd.engine.prepare.process import (
    PreparerGoneError,
    PreparerProcess,
    RenderOutcome,
)
from inferd.errors import BackendUnavailableError, InternalError, InvalidRequestError
from inferd.ipc.preparer import (
    Configure,
    ForkExited,
    Render,
    Rendered,
    RenderFailed,
    RenderRefused,
)
from inferd.limits.engine import (
    KNOWN_GRAMMARS_PER_USER,
    KNOWN_GRAMMARS_PRINCIPALS,
    KNOWN_GRAMMARS_USERS,
    PREPARER_STARTS_MAX,
    RENDER_ATTEMPTS_MAX,
    RENDER_TIMEOUT_S,
)


class KnownGrammars:
    """Digests of compiled grammars, by user.

    Bounds:
        ``KNOWN_GRAMMARS_PER_USER`` for each of ``KNOWN_GRAMMARS_USERS`` users; the least
        recently used are evicted. Of the principals of a gateway,
        ``KNOWN_GRAMMARS_PRINCIPALS`` are kept, and of the other owners below ``NO_UID``, who
        share one quota and may be any number, one.
    """

    def __init__(self) -> None:
        self._owners: OrderedDict[int, OrderedDict[bytes, None]] = OrderedDict()

    def of(self, owner: int) -> tuple[bytes, ...]:
        """Return a user's digests."""
        return tuple(self._owners.get(owner, ()))

    def add(self, owner: int, digests: Iterable[bytes]) -> None:
        """Note that a user's grammars have compiled."""
        if owner < NO_UID and owner not in self._owners:
            most = KNOWN_GRAMMARS_PRINCIPALS if is_principal(owner) else 1
            sharer = sharer_of(owner)
            others = [each for each in self._owners if sharer_of(each) == sharer]
            for other in others[: max(0, len(others) + 1 - most)]:
                del self._owners[other]
        known = self._owners.setdefault(owner, OrderedDict())
        self._owners.move_to_end(owner)
        for digest in digests:
            known[digest] = None
            known.move_to_end(digest)
        while len(known) > KNOWN_GRAMMARS_PER_USER:
            known.popitem(last=False)
        while len(self._owners) > KNOWN_GRAMMARS_USERS:
            self._owners.popitem(last=False)


_TOO_LONG: Final = "takes too long"
_TOO_LARGE: Final = "takes too much memory"
_EXIT_REASONS: Final = {
    -signal.SIGPROF: _TOO_LONG,
    -signal.SIGXCPU: _TOO_LONG,
    -signal.SIGABRT: _TOO_LARGE,  # native code aborts when an allocation fails
    -signal.SIGKILL: _TOO_LARGE,  # killed for want of memory on the whole machine
}
_IDLE_S: Final = 1.0
"""Seconds to wait for the unread reply to an earlier job."""
_CRASHED: Final = "crashes the process that does it"
_RENDERING: Final = "rendering the prompt or translating tools and response_format"


class Preparer:
    """Renders prompts and compiles grammars for the jobs of one worker.

    Args:
        prompt_format: how the model wants its prompts, as the worker reported.
        get_token_table: fetches the model's vocabulary from the worker.
        start_timeout_s: seconds within which a process must be ready.
        start: starts a process.

    Bounds:
        One process and one job at a time. A process takes Python's memory, and 40 to 120
        MiB for a vocabulary.
    """

    def __init__(
        self,
        prompt_format: bytes,
        get_token_table: Callable[[], Awaitable[bytes]],
        *,
        start_timeout_s: float,
        start: Callable[[], PreparerProcess] = PreparerProcess,
    ) -> None:
        self._prompt_format = prompt_format
        self._get_token_table = get_token_table
        self._start_timeout_s = start_timeout_s
        self._start = start
        self._tickets = count(1)
        self._lock = trio.Lock()
        self._process: PreparerProcess | None = None
        self._has_token_table = False
        self._deadline = 0.0
        """Deadline of the last job that was sent to a process."""
        self._is_closed = False
        self._known_grammars = KnownGrammars()

    async def render(self, job: GenerateJob) -> RenderedJob:
        """Render a job's prompt and compile its grammar, if it has one.

        Raises:
            InvalidRequestError: the job cannot be served as it stands, or exceeds a limit
                of time or memory.
            WorkerDiedError: this was closed.
            BackendUnavailableError: no process can be started.
            InternalError: a bug.

        Cancellation: safe; the next job waits for the abandoned one.
        """
        async with self._lock:
            left_s = RENDER_TIMEOUT_S
            for _ in range(RENDER_ATTEMPTS_MAX):
                process = await self._ready(needs_token_table=job.is_structured)
                self._deadline = trio.current_time() + left_s
                try:
                    return await self._render(job, process)
                except PreparerGoneError:
                    await self._drop()
                left_s = max(0.0, self._deadline - trio.current_time())
        raise InvalidRequestError(
            f"{_RENDERING}: the process that does it was ended {RENDER_ATTEMPTS_MAX} times"
        )

    async def aclose(self) -> None:
        """End the process, if there is one, and start no other."""
        self._is_closed = True
        await self._drop()

    async def _render(self, job: GenerateJob, process: PreparerProcess) -> RenderedJob:
        known = self._known_grammars.of(job.owner)
        message = Render(ticket=next(self._tickets), job=job, known_grammars=known)
        try:
            with trio.fail_at(self._deadline):
                outcome = await process.render(message)
        except trio.TooSlowError:
            field = process.grammar_field
            await self._drop()
            raise _refusal(field, _TOO_LONG) from None
        if isinstance(outcome, Rendered):
            self._known_grammars.add(job.owner, outcome.compiled_grammars)
        return _to_rendered(outcome, process.grammar_field)

    async def _ready(self, *, needs_token_table: bool) -> PreparerProcess:
        """Return a process that is idle; start one if there is none."""
        if (
            self._process is not None
            and needs_token_table
            and not self._has_token_table
        ):
            await self._drop()
        if self._process is not None:
            if await self._wait_idle(self._process):
                return self._process
            await self._drop()
        token_table = await self._get_token_table() if needs_token_table else b""
        for _ in range(PREPARER_STARTS_MAX):
            if self._is_closed:
                raise WorkerDiedError("the worker is gone")
            try:
                return await self._start_process(token_table)
            except PreparerGoneError:
                await self._drop()
        raise BackendUnavailableError(
            "the process that renders prompts exits at its start"
        )

    async def _wait_idle(self, process: PreparerProcess) -> bool:
        """Wait for the end of an abandoned job until its deadline; tell if it ended."""
        deadline = max(self._deadline, trio.current_time() + _IDLE_S)
        with suppress(PreparerGoneError), trio.move_on_at(deadline):
            await process.wait_idle()
            return True
        return False

    async def _start_process(self, token_table: bytes) -> PreparerProcess:
        try:
            self._process = self._start()
        except OSError as error:
            raise BackendUnavailableError(
                f"the process that renders prompts cannot be started: {error.strerror}"
            ) from error
        self._has_token_table = bool(token_table)
        try:
            with trio.fail_after(self._start_timeout_s):
                await self._process.configure(
                    Configure(
                        prompt_format=self._prompt_format, token_table=token_table
                    )
                )
        except trio.TooSlowError:
            await self._drop()
            raise BackendUnavailableError(
                "the process that renders prompts takes too long to start"
            ) from None
        except trio.Cancelled:
            await self._drop()
            raise
        if self._process is None:
            raise WorkerDiedError("the worker is gone")
        return self._process

    async def _drop(self) -> None:
        process, self._process = self._process, None
        self._has_token_table = False
        if process is not None:
            await process.aclose()


def _to_rendered(outcome: RenderOutcome, field: str) -> RenderedJob:
    """Return the rendered job of an outcome.

    Raises:
        InvalidRequestError: it cannot be rendered.
        InternalError: a bug.
    """
    match outcome:
        case Rendered(rendered=rendered):
            return rendered
        case RenderRefused(reason=reason):
            raise InvalidRequestError(reason)
        case RenderFailed(reason=reason):
            raise InternalError(reason)
        case ForkExited(code=code):
            raise _refusal(field, _EXIT_REASONS.get(code, _CRASHED))


def _refusal(field: str, reason: str) -> InvalidRequestError:
    """Make the error for a job that exceeded a limit.

    Args:
        field: the field whose grammar was being compiled; empty if none was.
        reason: what happened.
    """
    what = f"{field}: compiling it" if field else _RENDERING
    return InvalidRequestError(f"{what} {reason}")
