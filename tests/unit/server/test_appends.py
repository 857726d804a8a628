import pytest
import trio
import trio.testing

from inferd.errors import InvalidRequestError, TooManyDescriptorsError
from inferd.limits import READ_AHEAD_BYTES
from inferd.server.appends import Appends, appends_of
from inferd.server.custody import NOTHING, Custody, Parcel
from inferd.server.limits import DESCRIPTOR_BYTES
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


def parcel_of(n_fds: int = 1) -> Parcel:
    parcel = Parcel(Custody(100))
    fds = tuple(memfd() for _ in range(n_fds))
    parcel.add(fds, is_cut=False)
    return parcel


def refusal(appends: Appends, what: AppendLine, parcel: Parcel = NOTHING) -> str:
    fault = appends.put(what, 10, parcel)
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
    appends = Appends(OPEN)
    lines = [line("1"), line("2"), line("3", end=True)]
    for each in lines:
        assert appends.put(each, 10, NOTHING) is None
    assert appends.n_bytes == 30
    assert [taken async for taken in appends] == [(each, ()) for each in lines]


async def test_who_waits_for_a_line_gets_it_as_soon_as_it_is_there(
    autojump_clock, nursery
):
    appends, seen = Appends(OPEN), list[tuple[float, bool]]()

    async def take_all() -> None:
        async for taken, _ in appends:
            seen.append((trio.current_time(), taken.end))

    start = trio.current_time()
    nursery.start_soon(take_all)
    for end in (False, True):
        await trio.sleep(1)
        appends.put(line(end=end), 10, NOTHING)
    await trio.testing.wait_all_tasks_blocked()
    assert seen == [(start + 1, False), (start + 2, True)]


async def test_it_ends_when_each_open_attachment_has(autojump_clock):
    appends = Appends(frozenset({"s", "t"}))
    appends.put(line(None, end=True), 10, NOTHING)
    assert appends.is_open
    appends.put(line(None, to="t", end=True), 10, NOTHING)
    assert not appends.is_open
    assert len([taken async for taken in appends]) == 2


async def test_where_no_more_can_come_what_is_there_is_all(autojump_clock):
    appends = Appends(OPEN)
    appends.put(line(), 10, NOTHING)
    appends.end()
    assert [taken async for taken in appends] == [(line(), ())]


async def test_who_waits_when_no_more_can_come_waits_no_longer(autojump_clock, nursery):
    appends = Appends(OPEN, timeout_s=60)
    start = trio.current_time()
    nursery.start_soon(_end_after, 1, appends)
    assert [taken async for taken in appends] == []
    assert trio.current_time() == start + 1


async def _end_after(seconds: float, appends: Appends) -> None:
    await trio.sleep(seconds)
    appends.end()


async def test_a_request_without_an_open_attachment_has_none():
    assert [taken async for taken in Appends()] == []


async def test_a_line_is_waited_for_so_long_and_no_longer(autojump_clock):
    appends = Appends(OPEN, timeout_s=60)
    appends.put(line(), 10, NOTHING)
    await anext(appends)
    start = trio.current_time()
    with pytest.raises(InvalidRequestError, match="nothing was appended in 60 s"):
        await anext(appends)
    assert trio.current_time() == start + 60


async def test_a_wait_that_is_given_up_loses_no_line(autojump_clock):
    appends = Appends(OPEN)
    with trio.move_on_after(1):
        await anext(appends)
    appends.put(line(), 10, NOTHING)
    assert await anext(appends) == (line(), ())


# --- what cannot be used ----------------------------------------------------------------


def test_to_what_is_not_open_nothing_is_appended():
    appends, fault = Appends(OPEN), 'append to attachment "{}", which is not open'
    assert refusal(appends, line(to="t")) == fault.format("t")
    appends.put(line(end=True), 10, NOTHING)
    assert refusal(appends, line()) == fault.format("s")
    assert appends.n_bytes == 10


def test_a_descriptor_that_did_not_come_is_refused_with_how_many_did():
    assert refusal(Appends(OPEN), line(None, fd=1), parcel_of(1)) == (
        "append.fd 1 not among the descriptors that came with the line, which are 1"
    )


def test_a_line_whose_descriptors_were_too_many_is_refused_for_that():
    parcel = Parcel(Custody(0))
    parcel.add((), is_cut=True)
    fault = Appends(OPEN).put(line(), 10, parcel)
    assert isinstance(fault, TooManyDescriptorsError)


# --- descriptors ------------------------------------------------------------------------


async def test_a_descriptor_is_open_until_the_next_line_is_asked_for(autojump_clock):
    appends = Appends(OPEN)
    appends.put(line(None, fd=0), 10, parcel_of(1))
    appends.put(line(end=True), 10, NOTHING)
    _, [fd] = await anext(appends)
    assert is_open(fd)
    await anext(appends)
    assert not is_open(fd)
    assert appends.n_fds == 1


async def test_all_are_closed_when_it_is(autojump_clock):
    appends = Appends(OPEN)
    for _ in range(3):
        appends.put(line(None, fd=0), 10, parcel_of(1))
    await anext(appends)
    assert not appends.is_closed
    appends.close()
    assert (appends.pending_bytes, appends.is_open) == (0, False)
    assert appends.is_closed
    assert refusal(appends, line(), parcel_of(1))


# --- bounds -----------------------------------------------------------------------------


async def test_there_is_room_for_so_many_bytes_and_again_when_they_are_taken(
    autojump_clock,
):
    n_taken = 0

    def count() -> None:
        nonlocal n_taken
        n_taken += 1

    appends = Appends(OPEN, on_taken=count)
    appends.put(line(), READ_AHEAD_BYTES - 1, NOTHING)
    assert appends.has_room
    appends.put(line(), 1, NOTHING)
    assert (appends.has_room, n_taken) == (False, 0)
    await anext(appends)
    assert (appends.has_room, n_taken) == (True, 1)


async def test_a_descriptor_counts_for_so_many_bytes(autojump_clock):
    appends = Appends(OPEN)
    appends.put(line(None, fd=0), 10, parcel_of(2))
    assert appends.pending_bytes == 10 + 2 * DESCRIPTOR_BYTES
    await anext(appends)
    assert appends.pending_bytes == 0
    appends.close()


# --- of a request -----------------------------------------------------------------------


def test_what_is_open_is_what_the_request_says():
    media: list[Attachment] = [
        AudioAttachment("a", 16000, open=True),
        AudioAttachment("b", 16000, bytes=""),
        ImageAttachment("c", 1, 1, bytes=""),
    ]
    request = BlocksRequest(messages=[], attachments=media)
    appends = appends_of(request, timeout_s=1, on_taken=list)
    assert [name for name in "abc" if appends.takes(name)] == ["a"]


async def test_a_request_s_lines_are_waited_for_as_its_connection_says(autojump_clock):
    media: list[Attachment] = [AudioAttachment("s", 16000, open=True)]
    request, taken = BlocksRequest(messages=[], attachments=media), []
    appends = appends_of(request, timeout_s=3, on_taken=lambda: taken.append(1))
    appends.put(line(), 10, NOTHING)
    await anext(appends)
    assert taken == [1]
    with pytest.raises(InvalidRequestError, match="in 3 s"):
        await anext(appends)


def test_a_line_that_brings_nothing_is_refused_unless_it_is_the_end():
    appends = Appends(OPEN)
    assert refusal(appends, line("")) == 'append to attachment "s" brings nothing'
    assert appends.put(line("", end=True), 10, NOTHING) is None
