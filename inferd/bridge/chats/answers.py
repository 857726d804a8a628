"""The answers that are generated: each in a task of its own, stored as it comes."""

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import trio
from msgspec.structs import replace

from inferd.bridge.access_log import kind_of
from inferd.bridge.chats.generation import Generation
from inferd.bridge.chats.parts import AnswerParts
from inferd.bridge.chats.running import RunningAnswer
from inferd.bridge.identity.caller import HttpCaller
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.chats.estimate import DurationEstimate
from inferd.chats.failures import ChatError
from inferd.chats.records import (
    AnswerFailure,
    KeptMessage,
    MessageState,
)
from inferd.chats.storage.messages import finish_answer, write_answer
from inferd.limits.bridge import FLUSH_S, LAST_WRITES_S, REOPEN_S


class ChatAnswers:
    """Generates answers; a lost connection ends none.

    Args:
        parts: what they are generated with.

    Bounds:
        Answers at once: ``max_pending`` of each owner, which the database counts.
        Once the bridge ends, their ends are stored within ``LAST_WRITES_S``.
    """

    def __init__(self, parts: AnswerParts) -> None:
        self._parts = parts
        self._running: dict[str, RunningAnswer] = {}
        self._estimate = DurationEstimate()
        self._gives_up_at = math.inf
        """When no end of an answer is stored any more."""

    @property
    def n_running(self) -> int:
        """Answers that are generated now."""
        return len(self._running)

    async def idle(self) -> None:
        """Wait until no answer is generated."""
        while self._running:
            await next(iter(self._running.values())).wait()

    def find(self, message_id: str) -> RunningAnswer | None:
        """Return an answer that is generated here."""
        return self._running.get(message_id)

    def stop(self, message_ids: Sequence[str]) -> None:
        """End answers that the database has marked already."""
        for each in message_ids:
            if (running := self._running.get(each)) is not None:
                running.is_stopped = True
                running.scope.cancel()

    def stop_chat(self, chat_id: str) -> None:
        """End all answers of a chat that was deleted."""
        found = [
            each.message.id
            for each in self._running.values()
            if each.message.chat_id == chat_id
        ]
        self.stop(found)

    def end(self) -> None:
        """Bound the time in which answers are stored: the bridge ends, and cancels them."""
        self._gives_up_at = trio.current_time() + LAST_WRITES_S
        for running in self._running.values():
            running.storing.deadline = self._gives_up_at

    def begin(
        self,
        nursery: trio.Nursery,
        caller: HttpCaller,
        message: KeptMessage,
        via: Sequence[str] = (),
    ) -> None:
        """Generate an answer that the database has as pending; once if told twice."""
        if message.id in self._running:
            return
        running = RunningAnswer(caller.principal, message, via)
        self._running[message.id] = running
        nursery.start_soon(self._run, caller, running)

    async def _run(self, caller: HttpCaller, running: RunningAnswer) -> None:
        """Generate an answer, and store how it ended, whatever that was."""
        state: MessageState = "aborted_by_worker"
        failure: BridgeError | None = None
        try:
            with running.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._keep, running)
                    failure = await self._try(caller, running)
                    nursery.cancel_scope.cancel()
                state = "complete" if failure is None else _state_of(failure)
        finally:
            await self._finish(running, state, failure)

    async def _try(
        self, caller: HttpCaller, running: RunningAnswer
    ) -> BridgeError | None:
        """Generate an answer; return why it failed, if it did."""
        try:
            await Generation(self._parts, self._estimate, caller, running).run()
        except BridgeError as error:
            return error
        except ChatError as error:
            return BridgeError(Reason.CHATS_UNAVAILABLE, str(error))
        except Exception as error:  # noqa: BLE001  # a bug: told without its text
            self._parts.log.write("error", "chat_answer.failed", error=kind_of(error))
            return BridgeError(
                Reason.INTERNAL, "a bug, which the log of the bridge has"
            )
        return None

    async def _keep(self, running: RunningAnswer) -> None:
        """Store an answer as it comes; end it where somebody else has stopped it."""
        while True:
            await trio.sleep(FLUSH_S)
            if not await self._write(running, running.message):
                self.stop([running.message.id])

    async def _write(self, running: RunningAnswer, message: KeptMessage) -> bool:
        """Store an answer; tell whether it is still to be generated.

        A database that cannot be used now is tried again later.
        """
        store = self._parts.store
        with suppress(ChatError):
            is_wanted = await store.run(
                lambda connection: write_answer(connection, message, store.runner)
            )
            running.is_written = running.message is message
            return is_wanted
        return True

    async def _finish(
        self, running: RunningAnswer, state: MessageState, failure: BridgeError | None
    ) -> None:
        """Store how an answer ended, and tell those who follow what is stored.

        Cancellation: goes on, until ``end`` bounds it.
        """
        details = running.message.details
        if failure is not None:
            told = AnswerFailure(failure.reason.value, str(failure))
            details = replace(details, failure=told)
        ended = replace(running.message, state=state, details=details)
        stored = running.message
        running.storing.deadline = self._gives_up_at
        with running.storing:
            stored = await self._stored(running, ended)
        del self._running[stored.id]
        running.change(stored)

    async def _stored(
        self, running: RunningAnswer, message: KeptMessage
    ) -> KeptMessage:
        """Store the end of an answer, as soon as that can be; return what is stored.

        One that was stopped has ended in the database already: only the rest of its text is
        lost where that cannot be used now.
        """
        store = self._parts.store
        while True:
            if running.is_stopped:
                message = message.as_stopped()
            try:
                stored = await store.run(
                    partial(finish_answer, message=message, runner=store.runner)
                )
            except ChatError as error:
                self._parts.log.write("error", "chats.not_stored", reason=str(error))
                if running.is_stopped:
                    return message.as_stopped()
                await trio.sleep(REOPEN_S)
            else:
                return stored or message.as_stopped()


def _state_of(failure: BridgeError) -> MessageState:
    return "timeout" if failure.reason is Reason.DEADLINE else "aborted_by_worker"
