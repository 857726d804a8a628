"""The tasks of a worker that asks a remote, at its messages, with a remote of a few lines."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import pytest
import trio

from inferd.backend.job import GenerateJob, Turn
from inferd.config.kinds.openai import OpenAiSettings
from inferd.config.kinds.remote_limits import (
    HIGHEST_ANSWER_BYTES,
    HIGHEST_EVENT_BYTES,
    MAX_FAILURES,
    OPEN_S,
    TRIAL_S,
)
from inferd.ipc.worker import (
    Availability,
    Drop,
    Failed,
    FromWorker,
    Prepare,
    PromptReady,
    ReceivedByWorker,
    Run,
    Step,
)
from inferd.limits.engine import (
    IPC_ITEMS_MAX,
    JOB_ANSWER_BYTES,
    JOB_ITEM_BYTES,
    MAX_IPC_MESSAGE_BYTES,
)
from inferd.worker.channel import ReceivedMessage
from inferd.worker.remote.api import RemoteRequest
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.http.deadline import AnswerDeadline
from inferd.worker.remote.openai.api import OPENAI_API
from inferd.worker.remote.service import RemoteService
from tests.fakes.remote_engine import DONE, chunk
from tests.unit.worker.remote.openai.jobs import TOOL, job, settings

Event = bytes | float | OSError
"""The data of an event, the seconds until the next, or what the connection fails with."""
Received = ReceivedByWorker | float
"""A message, or the seconds until the next."""


class _Channel:
    """Gives the messages at once, and waits for as many replies of jobs."""

    def __init__(self, messages: Sequence[Received], n_replies: int) -> None:
        self._messages = messages
        self._n_replies = n_replies
        self._over = trio.Event()
        self.sent: list[FromWorker] = []

    async def send(self, message: FromWorker) -> None:
        self.sent.append(message)
        is_end = isinstance(message, Failed) or bool(
            isinstance(message, Step) and message.ended
        )
        self._n_replies -= is_end
        if self._n_replies == 0:
            self._over.set()

    async def receive_all(self) -> AsyncIterator[ReceivedMessage]:
        for message in self._messages:
            if isinstance(message, float):
                await trio.sleep(message)
            else:
                yield ReceivedMessage(message, ())
        await self._over.wait()


class _Exchange:
    def __init__(self, settings: OpenAiSettings, events: Sequence[Event]) -> None:
        self._settings = settings
        self._events = events

    @asynccontextmanager
    async def ask(self, _request: RemoteRequest):
        with trio.CancelScope() as scope:
            try:
                yield self._read(), AnswerDeadline(self._settings, scope)
            except OSError as error:
                raise RemoteError("the remote's answer broke off") from error
        assert not scope.cancelled_caught, "too slow"

    async def _read(self) -> AsyncIterator[bytes]:
        for each in self._events:
            if isinstance(each, OSError):
                raise each
            if isinstance(each, bytes):
                yield each.removeprefix(b"data: ").removesuffix(b"\n\n")
            else:
                await trio.sleep(each)


ANSWER: Final = (chunk("hi"), chunk(reason="stop"), DONE)


async def served(
    messages: Sequence[Received],
    *,
    n_replies: int = 1,
    events: Sequence[Event] = ANSWER,
    **options,
) -> list[FromWorker]:
    """Serve these messages; return what is sent."""
    configured = settings(**options)
    channel = _Channel(messages, n_replies)
    connect: Callable[[], _Exchange] = lambda: _Exchange(configured, events)  # noqa: E731
    service = RemoteService(
        channel,  # type: ignore[arg-type]  # has what is used
        configured,
        OPENAI_API,
        connect,  # type: ignore[arg-type]  # has what is used
        heartbeat_s=1e6,
        key="",
    )
    await service.serve()
    return channel.sent


def prepare(ticket: int, of: GenerateJob) -> Prepare:
    return Prepare(ticket=ticket, job=of)


async def test_a_job_that_is_dropped_before_it_has_begun_ends_nothing_else(
    autojump_clock,
):
    messages: list[Received] = [
        prepare(1, job()),
        Run(ticket=1),
        Drop(ticket=1),
        prepare(2, job()),
        Drop(ticket=2),
        Run(ticket=2),
        prepare(3, job()),
        Run(ticket=3),
    ]
    ended = [
        end.ticket
        for message in await served(messages)
        if isinstance(message, Step)
        for end in message.ended
    ]
    assert ended == [3]


async def test_an_estimate_that_exceeds_the_context_refuses_nothing(autojump_clock):
    long = job(turns=[Turn("user", "x" * 4000)])
    sent = await served([prepare(1, long), Run(ticket=1)], n_ctx=100)
    assert sent[0] == PromptReady(ticket=1, prompt_tokens=100, is_estimate=True)


async def test_a_long_call_is_no_stall(autojump_clock):
    parts = [
        chunk(tool_calls=[{"index": 0, "function": {"name": name, "arguments": text}}])
        for name, text in (("add", '{"a":'), ("", "1"), ("", "}"))
    ]
    events = [each for part in parts for each in (9.0, part)]
    sent = await served(
        [prepare(1, job(tools=[TOOL])), Run(ticket=1)],
        events=[*events, chunk(reason="tool_calls"), DONE],
        first_token_timeout_s=10.0,
        stall_timeout_s=10.0,
    )
    assert isinstance(sent[-1], Step)
    assert b'"add"' in b"".join(piece for _, piece in sent[-1].pieces)


async def test_those_who_come_while_one_request_tries_the_remote_are_told_to_wait(
    autojump_clock,
):
    def ask(ticket: int) -> list[Received]:
        return [prepare(ticket, job()), Run(ticket=ticket)]

    asked = [*ask(1), *ask(2), *ask(3), OPEN_S + 9.0, *ask(4), *ask(5)]
    sent = await served(asked, n_replies=5, events=[5.0, b"{]"])
    failed = [each for each in sent if isinstance(each, Failed)]
    [refused] = [each for each in failed if "is not asked for a while" in each.reason]
    assert refused.ticket in {4, 5}  # they begin in any order
    assert refused.retry_after_ms == TRIAL_S * 1000


async def test_the_open_breaker_is_told_before_the_failure_that_opened_it(
    autojump_clock,
):
    """Who asks again after that failure must be routed elsewhere."""
    asked = [
        each
        for ticket in (1, 2, 3)
        for each in (prepare(ticket, job()), Run(ticket=ticket))
    ]
    sent = await served(asked, n_replies=3, events=[b"{]"])
    told = [each for each in sent if isinstance(each, Failed | Availability)]
    assert [*map(type, told[:4])] == [Failed, Failed, Availability, Failed]
    assert isinstance(told[2], Availability)
    assert told[2].unavailable.startswith("the remote failed, and is not asked")
    assert told[2].retry_after_ms == OPEN_S * 1000


async def test_an_event_of_many_parts_breaks_no_bound_of_the_messages(autojump_clock):
    """The daemon ends a worker whose message has more items, and all of its requests."""
    choice = {"delta": {"content": "a"}}
    event = msgspec.json.encode({"choices": [choice] * (IPC_ITEMS_MAX + 1)})
    sent = await served(
        [prepare(1, job(max_tokens=2**17)), Run(ticket=1)],
        events=[event, *ANSWER[1:]],
        max_event_bytes=HIGHEST_EVENT_BYTES,
    )
    steps = [each for each in sent if isinstance(each, Step)]
    assert sum(len(step.pieces) for step in steps) == IPC_ITEMS_MAX + 1
    assert max(len(step.pieces) for step in steps) < IPC_ITEMS_MAX


def test_the_longest_answer_that_can_be_configured_is_one_that_the_daemon_takes():
    shortest = len(b'{"delta":{"content":"a"}},')
    n_parts = HIGHEST_ANSWER_BYTES // shortest
    assert n_parts * (JOB_ITEM_BYTES + 1) < JOB_ANSWER_BYTES
    assert HIGHEST_EVENT_BYTES < MAX_IPC_MESSAGE_BYTES


@pytest.mark.parametrize(
    "more", [[b"{]"], [99.0], [chunk("late"), 99.0], [ConnectionResetError()]]
)
async def test_what_follows_the_end_of_an_answer_changes_nothing(autojump_clock, more):
    tickets = [*range(1, MAX_FAILURES + 2)]
    asked = [
        each
        for ticket in tickets
        for each in (prepare(ticket, job()), Run(ticket=ticket), 1.0)
    ]
    sent = await served(
        [*asked, 200.0], n_replies=len(tickets), events=[*ANSWER, *more]
    )
    ended = [
        each.ticket
        for message in sent
        if isinstance(message, Step | Failed)
        for each in (message.ended if isinstance(message, Step) else [message])
    ]
    assert ended == tickets
    assert not [each for each in sent if isinstance(each, Failed | Availability)]
