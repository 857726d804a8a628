from collections.abc import Iterable, Sequence

import pytest
import trio
import trio.testing

from inferd.backend.events import PausedPosition, Token, TokenEvent
from inferd.engine.channel.demultiplexer import (
    JobMessage,
    QueuePosition,
    WorkerDiedError,
)
from inferd.engine.channel.result_queue import ResultQueue
from inferd.engine.streams.base import AnswerStream, to_usage_v2
from inferd.errors import InternalError, InvalidRequestError
from inferd.ipc.worker import Failed
from inferd.wire.responses import Usage, UsageV2


class Words(AnswerStream[TokenEvent]):
    """A token for each piece that is not empty; a full stop is the end."""

    def _events_of(self, answer: JobMessage) -> Iterable[TokenEvent]:
        assert isinstance(answer, bytes)
        self._is_over = answer == b"."
        return [Token(answer.decode())] if answer else []


def words(*answers: JobMessage) -> tuple[ResultQueue[JobMessage], Words]:
    results = ResultQueue[JobMessage]()
    for answer in answers:
        results.put(answer)
    return results, Words(results)


async def batches_of(stream: Words) -> list[Sequence[TokenEvent]]:
    with trio.fail_after(5):
        return [batch async for batch in stream]


async def test_it_ends_with_the_end_and_gives_nothing_behind_it(autojump_clock):
    results, stream = words(
        b"a", b"", b"b", b".", b"c", Failed(ticket=1, reason="late")
    )
    assert await batches_of(stream) == [[Token("a"), Token("b"), Token(".")]]
    results.put(b"d")
    assert await batches_of(stream) == []


async def test_no_batch_is_empty(autojump_clock, nursery):
    results, stream = words(b"")
    taken: list[Sequence[TokenEvent]] = []

    async def take() -> None:
        taken.append(await anext(stream))

    nursery.start_soon(take)
    await trio.testing.wait_all_tasks_blocked()
    assert taken == []
    results.put(b"a")
    await trio.testing.wait_all_tasks_blocked()
    assert taken == [[Token("a")]]


@pytest.mark.parametrize(
    ("by_request", "error"), [(False, InternalError), (True, InvalidRequestError)]
)
async def test_a_failure_is_the_requests_doing_or_the_backends(
    by_request, error, autojump_clock
):
    _, stream = words(Failed(ticket=1, reason="tired", by_request=by_request))
    with pytest.raises(error, match="tired"):
        await batches_of(stream)


async def test_what_came_with_a_failure_is_told_before_it(autojump_clock):
    failed = Failed(ticket=1, reason="tired")
    _, stream = words(b"a", b"b", failed, b"c")
    assert await anext(stream) == [Token("a"), Token("b")]
    with pytest.raises(InternalError, match="tired"):
        await anext(stream)
    for is_sent in (True, False):
        _, stream = words(b"a", failed)
        sent: list[TokenEvent] = []

        def send(
            events: Iterable[TokenEvent],
            sent: list[TokenEvent] = sent,
            is_sent: bool = is_sent,  # noqa: FBT001  # of the loop
        ) -> bool:
            sent.extend(events)
            return is_sent

        if not is_sent:  # the client has to read on first
            assert await stream.forward(send)
        with pytest.raises(InternalError, match="tired"):
            await stream.forward(send)
        assert sent == [Token("a")]


async def test_a_death_is_raised_after_earlier_results(autojump_clock):
    results, stream = words(b"a")
    results.fail(WorkerDiedError("gone"))
    assert await anext(stream) == [Token("a")]
    with pytest.raises(WorkerDiedError):
        await anext(stream)


async def test_results_are_forwarded_up_to_the_end_or_to_one_who_takes_no_more(
    autojump_clock, nursery
):
    results, stream = words(b"a")
    sent: list[Sequence[TokenEvent]] = []
    goes_on: list[bool] = []

    def send(events: Iterable[TokenEvent]) -> bool:
        sent.append([*events])
        return Token("full") not in sent[-1]

    async def forward() -> None:
        goes_on.append(await stream.forward(send))

    def say(*answers: bytes) -> None:
        for answer in answers:
            results.add(answer)
        results.hand_over()

    for said in (b"full", b"."):
        nursery.start_soon(forward)
        await trio.testing.wait_all_tasks_blocked()
        say(b"b", said, b"c")
        await trio.testing.wait_all_tasks_blocked()
    full, end, b, c = Token("full"), Token("."), Token("b"), Token("c")
    assert (sent, goes_on) == ([[Token("a")], [b, full, c], [b, end]], [True, False])
    assert not await stream.forward(send)


async def test_a_failure_is_raised_in_the_task_that_forwards(autojump_clock):
    results, stream = words(b"a")
    sent: list[TokenEvent] = []

    def send(events: Iterable[TokenEvent]) -> bool:
        sent.extend(events)
        return True

    async def fail() -> None:
        await trio.testing.wait_all_tasks_blocked()
        results.add(Failed(ticket=1, reason="tired"))
        results.hand_over()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)
        with pytest.raises(InternalError, match="tired"):
            await stream.forward(send)
    assert sent == [Token("a")]


async def test_the_final_result_cancels_a_block(autojump_clock):
    results, stream = words()
    results.put_final(b".")
    with trio.fail_after(5), stream.until_over():
        await trio.sleep_forever()


def test_token_counts_are_the_same_in_v2():
    assert to_usage_v2(Usage(3, 2, 1)) == UsageV2(3, 2, 1)


async def test_a_queue_position_is_an_event_among_others(autojump_clock):
    _, stream = words(b"a", QueuePosition(2), b".")
    assert await batches_of(stream) == [[Token("a"), PausedPosition(2), Token(".")]]
