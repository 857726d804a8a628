from collections.abc import Iterable, Sequence

import pytest
import trio
import trio.testing

from inferd.engine.answers import Answer, Place, WorkerDiedError
from inferd.engine.mailbox import Mailbox
from inferd.engine.stream import AnswerStream, usage_v2
from inferd.errors import InternalError, InvalidRequestError
from inferd.events import Queued, Token, TokenEvent
from inferd.ipc import Failed
from inferd.wire.responses import Usage, UsageV2


class Words(AnswerStream[TokenEvent]):
    """A token for each piece that is not empty; a full stop is the end."""

    def _events_of(self, answer: Answer) -> Iterable[TokenEvent]:
        assert isinstance(answer, bytes)
        self._is_over = answer == b"."
        return [Token(answer.decode())] if answer else []


def words(*answers: Answer) -> tuple[Mailbox[Answer], Words]:
    box = Mailbox[Answer]()
    for answer in answers:
        box.put(answer)
    return box, Words(box)


async def batches_of(stream: Words) -> list[Sequence[TokenEvent]]:
    with trio.fail_after(5):
        return [batch async for batch in stream]


async def test_it_ends_with_the_end_and_gives_nothing_behind_it(autojump_clock):
    box, stream = words(b"a", b"", b"b", b".", b"c", Failed(ticket=1, reason="late"))
    assert await batches_of(stream) == [[Token("a"), Token("b"), Token(".")]]
    box.put(b"d")
    assert await batches_of(stream) == []


async def test_no_batch_is_empty(autojump_clock, nursery):
    box, stream = words(b"")
    taken: list[Sequence[TokenEvent]] = []

    async def take() -> None:
        taken.append(await anext(stream))

    nursery.start_soon(take)
    await trio.testing.wait_all_tasks_blocked()
    assert taken == []
    box.put(b"a")
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


async def test_a_death_is_told_behind_what_was_said(autojump_clock):
    box, stream = words(b"a")
    box.fail(WorkerDiedError("gone"))
    assert await anext(stream) == [Token("a")]
    with pytest.raises(WorkerDiedError):
        await anext(stream)


async def test_who_waits_for_something_else_is_told_of_the_last_answer(autojump_clock):
    box, stream = words()
    box.put_last(b".")
    with trio.fail_after(5), stream.until_over():
        await trio.sleep_forever()


def test_what_was_used_is_the_same_by_other_names():
    assert usage_v2(Usage(3, 2, 1)) == UsageV2(3, 2, 1)


async def test_a_place_in_the_queue_is_told_among_the_rest(autojump_clock):
    _, stream = words(b"a", Place(2), b".")
    assert await batches_of(stream) == [[Token("a"), Queued(2), Token(".")]]
