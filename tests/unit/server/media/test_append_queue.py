import pytest
import trio
import trio.testing

from inferd.errors import InvalidRequestError, TooManyDescriptorsError
from inferd.limits.connections import READ_AHEAD_BYTES
from inferd.limits.server import READ_AHEAD_DESCRIPTOR_BYTES
from inferd.server.fd_passing.quota import NO_FDS, FdQuota, LineFds
from inferd.server.media.append_queue import AppendQueue, make_append_queue
from inferd.wire.blocks import (
    Attachment,
    AudioAttachment,
    BlocksRequest,
    ImageAttachment,
)
from inferd.wire.speech import AppendLine
from tests.fakes.fds import is_open, memfd, n_open

OPEN = frozenset({"s"})


def line(text: str | None = "AAAA", *, to: str = "s", **fields) -> AppendLine:
    return AppendLine(id="r", attachment_id=to, bytes=text, **fields)


def fds_of(n_fds: int = 1) -> LineFds:
    line_fds = LineFds(FdQuota(100))
    fds = tuple(memfd() for _ in range(n_fds))
    line_fds.add(fds, is_cut=False)
    return line_fds


def refusal(appends: AppendQueue, what: AppendLine, line_fds: LineFds = NO_FDS) -> str:
    fault = appends.put(what, 10, line_fds)
    assert fault is not None
    return fault.message.removeprefix("invalid request: ")


@pytest.fixture(autouse=True)
def _nothing_is_left_open():
    n_before = n_open()
    yield
    assert n_open() == n_before


# --- order ------------------------------------------------------------------------------


async def test_lines_come_out_in_the_order_they_were_put_in_up_to_the_end(
    autojump_clock,
):
    appends = AppendQueue(OPEN)
    lines = [line("1"), line("2"), line("3", end=True)]
    for each in lines:
        assert appends.put(each, 10, NO_FDS) is None
    assert appends.n_bytes == 30
    assert [taken async for taken in appends] == [(each, ()) for each in lines]


async def test_a_waiting_task_gets_a_line_as_soon_as_it_is_queued(
    autojump_clock, nursery
):
    appends, seen = AppendQueue(OPEN), list[tuple[float, bool]]()

    async def take_all() -> None:
        async for taken, _ in appends:
            seen.append((trio.current_time(), taken.end))

    start = trio.current_time()
    nursery.start_soon(take_all)
    for end in (False, True):
        await trio.sleep(1)
        appends.put(line(end=end), 10, NO_FDS)
    await trio.testing.wait_all_tasks_blocked()
    assert seen == [(start + 1, False), (start + 2, True)]


async def test_it_ends_when_each_open_attachment_has(autojump_clock):
    appends = AppendQueue(frozenset({"s", "t"}))
    appends.put(line(None, end=True), 10, NO_FDS)
    assert appends.is_open
    appends.put(line(None, to="t", end=True), 10, NO_FDS)
    assert not appends.is_open
    assert len([taken async for taken in appends]) == 2


async def test_queued_lines_are_taken_after_the_end(autojump_clock):
    appends = AppendQueue(OPEN)
    appends.put(line(), 10, NO_FDS)
    appends.end()
    assert [taken async for taken in appends] == [(line(), ())]


async def test_the_end_wakes_a_waiting_task(autojump_clock, nursery):
    appends = AppendQueue(OPEN, timeout_s=60)
    start = trio.current_time()
    nursery.start_soon(_end_after, 1, appends)
    assert [taken async for taken in appends] == []
    assert trio.current_time() == start + 1


async def _end_after(seconds: float, appends: AppendQueue) -> None:
    await trio.sleep(seconds)
    appends.end()


async def test_a_request_without_an_open_attachment_has_none():
    assert [taken async for taken in AppendQueue()] == []


async def test_waiting_for_a_line_times_out(autojump_clock):
    appends = AppendQueue(OPEN, timeout_s=60)
    appends.put(line(), 10, NO_FDS)
    await anext(appends)
    start = trio.current_time()
    with pytest.raises(InvalidRequestError, match="nothing was appended in 60 s"):
        await anext(appends)
    assert trio.current_time() == start + 60


async def test_a_cancelled_wait_loses_no_line(autojump_clock):
    appends = AppendQueue(OPEN)
    with trio.move_on_after(1):
        await anext(appends)
    appends.put(line(), 10, NO_FDS)
    assert await anext(appends) == (line(), ())


# --- what cannot be used ----------------------------------------------------------------


def test_an_append_to_an_attachment_that_is_not_open_is_refused():
    appends, fault = AppendQueue(OPEN), 'append to attachment "{}", which is not open'
    assert refusal(appends, line(to="t")) == fault.format("t")
    appends.put(line(end=True), 10, NO_FDS)
    assert refusal(appends, line()) == fault.format("s")
    assert appends.n_bytes == 10


def test_a_descriptor_that_did_not_come_is_refused_with_how_many_did():
    assert refusal(AppendQueue(OPEN), line(None, fd=1), fds_of(1)) == (
        "append.fd 1 not among the descriptors that came with the line, which are 1"
    )


def test_a_line_whose_descriptors_were_too_many_is_refused_for_that():
    line_fds = LineFds(FdQuota(0))
    line_fds.add((), is_cut=True)
    fault = AppendQueue(OPEN).put(line(), 10, line_fds)
    assert isinstance(fault, TooManyDescriptorsError)


# --- descriptors ------------------------------------------------------------------------


async def test_a_descriptor_is_open_until_the_next_line_is_asked_for(autojump_clock):
    appends = AppendQueue(OPEN)
    appends.put(line(None, fd=0), 10, fds_of(1))
    appends.put(line(end=True), 10, NO_FDS)
    _, [fd] = await anext(appends)
    assert is_open(fd)
    await anext(appends)
    assert not is_open(fd)
    assert appends.n_fds == 1


async def test_close_closes_all_descriptors(autojump_clock):
    appends = AppendQueue(OPEN)
    for _ in range(3):
        appends.put(line(None, fd=0), 10, fds_of(1))
    await anext(appends)
    assert not appends.is_closed
    appends.close()
    assert (appends.pending_bytes, appends.is_open) == (0, False)
    assert appends.is_closed
    assert refusal(appends, line(), fds_of(1))


# --- bounds -----------------------------------------------------------------------------


async def test_there_is_room_for_so_many_bytes_and_again_when_they_are_taken(
    autojump_clock,
):
    n_taken = 0

    def count() -> None:
        nonlocal n_taken
        n_taken += 1

    appends = AppendQueue(OPEN, on_taken=count)
    appends.put(line(), READ_AHEAD_BYTES - 1, NO_FDS)
    assert appends.has_room
    appends.put(line(), 1, NO_FDS)
    assert (appends.has_room, n_taken) == (False, 0)
    await anext(appends)
    assert (appends.has_room, n_taken) == (True, 1)


async def test_a_descriptor_counts_for_so_many_bytes(autojump_clock):
    appends = AppendQueue(OPEN)
    appends.put(line(None, fd=0), 10, fds_of(2))
    assert appends.pending_bytes == 10 + 2 * READ_AHEAD_DESCRIPTOR_BYTES
    await anext(appends)
    assert appends.pending_bytes == 0
    appends.close()


# --- of a request -----------------------------------------------------------------------


def test_open_attachments_are_those_the_request_declares():
    media: list[Attachment] = [
        AudioAttachment("a", 16000, open=True),
        AudioAttachment("b", 16000, bytes=""),
        ImageAttachment("c", 1, 1, bytes=""),
    ]
    request = BlocksRequest(messages=[], attachments=media)
    appends = make_append_queue(request, timeout_s=1, on_taken=list)
    assert [name for name in "abc" if appends.takes(name)] == ["a"]


async def test_the_timeout_is_the_connection_s(autojump_clock):
    media: list[Attachment] = [AudioAttachment("s", 16000, open=True)]
    request, taken = BlocksRequest(messages=[], attachments=media), []
    appends = make_append_queue(request, timeout_s=3, on_taken=lambda: taken.append(1))
    appends.put(line(), 10, NO_FDS)
    await anext(appends)
    assert taken == [1]
    with pytest.raises(InvalidRequestError, match="in 3 s"):
        await anext(appends)


def test_an_empty_line_is_refused_unless_it_is_the_end():
    appends = AppendQueue(OPEN)
    assert refusal(appends, line("")) == 'append to attachment "s" brings nothing'
    assert appends.put(line("", end=True), 10, NO_FDS) is None
