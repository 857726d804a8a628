"""Those who follow an answer: what each of them lacks is sent, until its end."""

from dataclasses import dataclass, field
from typing import Final

import trio

from inferd.bridge.chats.answers import ChatAnswers
from inferd.bridge.chats.events import ChatEventStream, ReadSoFar, events_since
from inferd.bridge.chats.failures import telling_chat_failures
from inferd.bridge.chats.handlers import ChatHandlers
from inferd.bridge.chats.hosted import HostedRequest
from inferd.bridge.chats.parts import AnswerParts
from inferd.bridge.chats.running import RunningAnswer
from inferd.bridge.http.exchange import HttpExchange
from inferd.bridge.translation.failures import BridgeError
from inferd.chats.records import KeptMessage
from inferd.limits.bridge import FOLLOW_S, KEEP_ALIVE_S

EVENTS: Final = ChatEventStream()


@dataclass(eq=False)
class ChatService:
    """The parts that serve chats, where they are kept."""

    parts: AnswerParts
    answers: ChatAnswers = field(init=False)
    handlers: ChatHandlers = field(init=False)

    def __post_init__(self) -> None:
        self.answers = ChatAnswers(self.parts)
        self.handlers = ChatHandlers(self.parts.store, self.parts.settings)


def latest(service: ChatService, message: KeptMessage) -> KeptMessage:
    """Return a message with what has not been stored of it yet."""
    running = service.answers.find(message.id)
    if running is None or not message.is_unfinished:
        return message
    return running.message


@dataclass(eq=False)
class Following:
    """Sends the events of an answer to one client."""

    service: ChatService
    request: HostedRequest
    exchange: HttpExchange
    so_far: ReadSoFar
    _silent_since: float = field(default_factory=trio.current_time)

    async def run(self, message: KeptMessage) -> None:
        """Send what the client lacks, and then what comes, until the end."""
        running = self.service.answers.find(message.id)
        try:
            while True:
                await self._send(message, running)
                if self.so_far.is_over:
                    return
                message = await self._next(message, running)
        except BridgeError as error:
            await self.exchange.write(EVENTS.failure_event(error))

    async def _send(self, message: KeptMessage, running: RunningAnswer | None) -> None:
        pending = running.pending if running else None
        if message.state != "pending":
            pending = None
        lines: list[bytes] = []
        for line, after in events_since(self.so_far, message, pending):
            lines.append(line)
            self.so_far = after
        if not lines and trio.current_time() - self._silent_since >= KEEP_ALIVE_S:
            lines.append(EVENTS.keep_alive)
        if lines:
            await self.exchange.write(b"".join(lines))
            self._silent_since = trio.current_time()

    async def _next(
        self, message: KeptMessage, running: RunningAnswer | None
    ) -> KeptMessage:
        """Wait for a change, or for as long as a client hears nothing at most."""
        if running is None:
            await trio.sleep(FOLLOW_S)
            with telling_chat_failures():
                return await self.service.handlers.read_message(self.request)
        is_told = running.pending == self.so_far.pending or message.state != "pending"
        if running.message is message and is_told:
            with trio.move_on_after(KEEP_ALIVE_S):
                await running.wait()
        return running.message
