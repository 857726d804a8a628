"""What is not plain of a model's requests is written in a process that can be ended.

It is started when the first such request comes, and anew when it is gone. What ends it
costs no worker anything, and no request but the one that it was at.
"""

import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Final

import trio

from inferd.engine.answers import WorkerDiedError
from inferd.engine.preparation import Outcome, Preparation, PreparationGoneError
from inferd.engine.remembered import Remembered
from inferd.errors import BackendUnavailableError, InternalError, InvalidRequestError
from inferd.job import GenerateJob, Written
from inferd.limits import PREPARER_STARTS_MAX, WRITES_MAX, WRITING_TIMEOUT_S
from inferd.preparing import Broken, Ended, Learn, Unwritable, Write, Wrote

_TOO_LONG: Final = "takes too long"
_TOO_LARGE: Final = "takes too much memory"
_WHY: Final = {
    -signal.SIGPROF: _TOO_LONG,
    -signal.SIGXCPU: _TOO_LONG,
    -signal.SIGABRT: _TOO_LARGE,  # what native code does where it gets none
    -signal.SIGKILL: _TOO_LARGE,  # of the whole machine's
}
_SETTLE_S: Final = 1.0
"""Seconds in which the answer to an earlier job is read that nobody has read so far."""
_CRASHED: Final = "crashes what does it"
_WRITING: Final = "rendering the prompt or translating tools and response_format"


class Preparer:
    """Writes prompts and grammars for the jobs of one worker.

    Args:
        facts: how the model wants its prompts, as the worker told.
        words: gives the model's vocabulary, as the worker tells it.
        start_timeout_s: seconds in which a process has to be ready.
        start: starts one.

    Bounds:
        One process and one job at a time. A process holds Python, and 40 to 120 MiB for a
        vocabulary.
    """

    def __init__(
        self,
        facts: bytes,
        words: Callable[[], Awaitable[bytes]],
        *,
        start_timeout_s: float,
        start: Callable[[], Preparation] = Preparation,
    ) -> None:
        self._facts = facts
        self._words = words
        self._start_timeout_s = start_timeout_s
        self._start = start
        self._tickets = count(1)
        self._turn = trio.Lock()
        self._process: Preparation | None = None
        self._knows_words = False
        self._until = 0.0
        """When the last job that a process has got has to be written."""
        self._is_closed = False
        self._remembered = Remembered()

    async def write(self, job: GenerateJob) -> Written:
        """Write a job's prompt, and its grammar, if it has one, which is tried.

        Raises:
            InvalidRequestError: it cannot be served as it stands, or takes more than it
                may.
            WorkerDiedError: this was closed.
            BackendUnavailableError: no process is to be had.
            InternalError: a fault of ours.

        Cancellation: safe; what is under way is waited for by the next job.
        """
        async with self._turn:
            left_s = WRITING_TIMEOUT_S
            for _ in range(WRITES_MAX):
                process = await self._ready(needs_words=job.is_structured)
                self._until = trio.current_time() + left_s
                try:
                    return await self._write(job, process)
                except PreparationGoneError:
                    await self._drop()
                left_s = max(0.0, self._until - trio.current_time())
        raise InvalidRequestError(
            f"{_WRITING}: the process that does it was ended {WRITES_MAX} times"
        )

    async def aclose(self) -> None:
        """End the process, if there is one; no other is started."""
        self._is_closed = True
        await self._drop()

    async def _write(self, job: GenerateJob, process: Preparation) -> Written:
        known = self._remembered.of(job.owner)
        asked = Write(ticket=next(self._tickets), job=job, known=known)
        try:
            with trio.fail_at(self._until):
                outcome = await process.ask(asked)
        except trio.TooSlowError:
            where = process.where
            await self._drop()
            raise _refusal(where, _TOO_LONG) from None
        if isinstance(outcome, Wrote):
            self._remembered.add(job.owner, outcome.tried)
        return _written(outcome, process.where)

    async def _ready(self, *, needs_words: bool) -> Preparation:
        """Give a process that waits for a job."""
        if self._process is not None and needs_words and not self._knows_words:
            await self._drop()
        if self._process is not None:
            if await self._settled(self._process):
                return self._process
            await self._drop()
        words = await self._words() if needs_words else b""
        for _ in range(PREPARER_STARTS_MAX):
            if self._is_closed:
                raise WorkerDiedError("the worker is gone")
            try:
                return await self._started(words)
            except PreparationGoneError:
                await self._drop()
        raise BackendUnavailableError("what writes prompts ends as it is started")

    async def _settled(self, process: Preparation) -> bool:
        """Wait for the end of a job that nobody waits for, as long as that may take."""
        until = max(self._until, trio.current_time() + _SETTLE_S)
        with suppress(PreparationGoneError), trio.move_on_at(until):
            await process.settle()
            return True
        return False

    async def _started(self, words: bytes) -> Preparation:
        try:
            self._process = self._start()
        except OSError as error:
            raise BackendUnavailableError(
                f"what writes prompts cannot be started: {error.strerror}"
            ) from error
        self._knows_words = bool(words)
        try:
            with trio.fail_after(self._start_timeout_s):
                await self._process.learn(Learn(facts=self._facts, words=words))
        except trio.TooSlowError:
            await self._drop()
            raise BackendUnavailableError(
                "what writes prompts takes too long to start"
            ) from None
        except trio.Cancelled:
            await self._drop()
            raise
        if self._process is None:
            raise WorkerDiedError("the worker is gone")
        return self._process

    async def _drop(self) -> None:
        process, self._process = self._process, None
        self._knows_words = False
        if process is not None:
            await process.aclose()


def _written(outcome: Outcome, where: str) -> Written:
    """Give what was written.

    Raises:
        InvalidRequestError: it cannot be.
        InternalError: a fault of ours.
    """
    match outcome:
        case Wrote(written=written):
            return written
        case Unwritable(reason=reason):
            raise InvalidRequestError(reason)
        case Broken(reason=reason):
            raise InternalError(reason)
        case Ended(code=code):
            raise _refusal(where, _WHY.get(code, _CRASHED))


def _refusal(where: str, why: str) -> InvalidRequestError:
    """Word that a job took more than it may.

    Args:
        where: the field whose grammar was being compiled, if one was.
        why: what happened.
    """
    what = f"{where}: compiling it" if where else _WRITING
    return InvalidRequestError(f"{what} {why}")
