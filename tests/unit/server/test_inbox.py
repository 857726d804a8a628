from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from inferd.errors import (
    DrainingError,
    FrameTooLargeError,
    InvalidFrameError,
    InvalidRequestError,
    PeerError,
)
from inferd.limits import LARGE_LINE_BYTES, READ_AHEAD_BYTES, READ_AHEAD_REQUESTS
from inferd.server.activity import Activity
from inferd.server.appends import appends_of
from inferd.server.arrivals import Arrival, Arrivals, ReadAhead
from inferd.server.custody import Custody, Parcel
from inferd.server.inbox import Inbox
from inferd.server.parcels import Parcels
from inferd.server.peer import Peer
from inferd.wire.codec import Request, decode_blocks, decode_generate
from inferd.wire.framing import LineSplitter
from inferd.wire.requests import GenerateRequest
from tests.fakes.fds import memfd, n_open
from tests.fakes.streams import append, blocks, cancel, generate
from tests.unit.strategies import chunked

PEER = Peer(pid=17, uid=1000, gid=100)
BAD = b"no JSON\n"
END = b""

Taken = Arrival[GenerateRequest] | PeerError
Seen = tuple[str | type[PeerError], bool]


def begin(request: Request, n_bytes: int, parcel: Parcel) -> Activity:
    return Activity(PEER, "infer.sock", request.id, 0.0, n_bytes, parcel=parcel)


def places() -> Arrivals[Any]:
    return Arrivals(ReadAhead(), PEER.user)


def filled(*chunks: bytes) -> Inbox[GenerateRequest]:
    inbox = Inbox(decode_generate, begin, places())
    for chunk in chunks:
        inbox.feed(chunk)
    return inbox


def all_of(inbox: Inbox[GenerateRequest]) -> Iterator[Taken]:
    return iter(inbox.take, None)


def what(arrival: Taken | None) -> Seen:
    """Tell a request by its id, a failure by its class; and whether it is cancelled."""
    assert arrival is not None
    if isinstance(arrival, PeerError):
        return type(arrival), False
    return arrival.request.id, arrival.activity.is_cancelled


def seen_in(inbox: Inbox[GenerateRequest]) -> list[Seen]:
    return [what(arrival) for arrival in all_of(inbox)]


# --- order ------------------------------------------------------------------------------


def test_requests_come_out_in_the_order_they_came_in():
    inbox = filled(generate("a") + generate("b"), generate("c"))
    assert seen_in(inbox) == [("a", False), ("b", False), ("c", False)]
    assert inbox.take() is None
    assert not inbox.is_over


def test_each_request_has_an_activity_of_its_own_from_when_it_was_read():
    begun: list[tuple[str, int]] = []

    def note(request: Request, n_bytes: int, parcel: Parcel) -> Activity:
        begun.append((request.id, n_bytes))
        return begin(request, n_bytes, parcel)

    inbox = Inbox(decode_generate, note, places())
    inbox.feed(generate("a") + generate("b") + generate("c")[:10])
    assert begun == [(each, len(generate(each)) - 1) for each in "ab"]
    first, second = inbox.waiting
    assert first is not second
    assert [first.request_id, second.request_id] == ["a", "b"]
    assert inbox.take() is not None
    assert inbox.waiting == [second]


@pytest.mark.parametrize("bad", [BAD, b"\n", b"{}\n", cancel().replace(b'"r"', b"7")])
def test_a_bad_line_has_its_turn_and_nothing_behind_it_is_read(bad):
    inbox = filled(generate("a") + bad + generate("b"), generate("c"), END)
    assert seen_in(inbox) == [("a", False), (InvalidFrameError, False)]
    assert inbox.is_over


def test_a_cancel_behind_a_bad_line_is_not_heard():
    assert seen_in(filled(generate("a") + BAD + cancel("a")))[0] == ("a", False)


def test_a_bad_line_is_nobody_s_request():
    inbox = filled(generate("a") + BAD)
    assert [each.request_id for each in inbox.waiting] == ["a"]


def test_a_line_over_the_cap_has_its_turn_too(monkeypatch):
    splitter = partial(LineSplitter, 200)
    monkeypatch.setattr("inferd.server.long_lines.LineSplitter", splitter)
    inbox = filled(generate("a") + b"x" * 201)
    assert seen_in(inbox) == [("a", False), (FrameTooLargeError, False)]
    assert inbox.is_over


# --- ends -------------------------------------------------------------------------------


def test_half_a_line_at_the_clients_end_is_a_request():
    inbox = filled(generate("a") + generate("b").rstrip())
    assert what(inbox.take()) == ("a", False)
    inbox.feed(END)
    assert not inbox.is_over
    assert seen_in(inbox) == [("b", False)]
    assert inbox.is_over


def test_half_a_cancel_at_the_clients_end_is_a_cancel():
    inbox = filled(generate("a") + cancel("a").rstrip(), END)
    assert seen_in(inbox) == [("a", True)]
    assert inbox.is_over


def test_a_client_that_ends_between_lines_is_over_at_once():
    assert filled(END).is_over


def test_half_a_line_that_the_daemon_cut_off_is_no_request():
    inbox = filled(generate("a") + generate("b") + generate("c")[:-2])
    inbox.cut_off()
    inbox.feed(END)
    assert not inbox.has_room
    assert seen_in(inbox) == [("a", False), ("b", False)]
    assert inbox.is_over


def test_a_whole_request_that_the_daemon_cut_off_at_its_newline_is_one():
    inbox = filled(generate("a") + generate("b")[:-1])
    inbox.cut_off()
    inbox.feed(END)
    assert seen_in(inbox) == [("a", False), ("b", False)]


def test_what_is_no_request_is_told_so_cut_off_or_not():
    inbox = filled(generate("a"))
    inbox.cut_off()
    inbox.feed(BAD)
    inbox.feed(END)
    assert seen_in(inbox) == [("a", False), (InvalidFrameError, False)]
    assert inbox.is_over


def test_what_is_closed_has_nothing_more():
    inbox = filled(generate("a") + b'{"mess')
    inbox.close()
    assert not inbox.has_room
    assert seen_in(inbox) == [("a", False)]
    assert inbox.is_over


def test_after_its_end_a_client_is_not_read():
    inbox = filled(generate("a"), END)
    assert not inbox.has_room
    assert seen_in(inbox) == [("a", False)]
    assert not inbox.has_room


# --- cancels ----------------------------------------------------------------------------


def test_a_cancel_reaches_the_current_one_and_all_that_wait():
    inbox = filled(generate("r") + generate("r") + generate("other") + generate("r"))
    current = inbox.take()
    inbox.feed(cancel("r"))
    assert what(current) == ("r", True)
    assert seen_in(inbox) == [("r", True), ("other", False), ("r", True)]


def test_a_cancel_right_behind_its_request_reaches_it():
    assert seen_in(filled(generate("r") + cancel("r"))) == [("r", True)]


def test_a_cancel_reaches_nobody_who_comes_after_it():
    assert seen_in(filled(cancel("r") + generate("r"))) == [("r", False)]


@pytest.mark.parametrize("unknown", ["", "x", "R", "r "])
def test_a_cancel_of_an_unknown_id_is_nothing(unknown):
    assert seen_in(filled(generate("r") + cancel(unknown))) == [("r", False)]


def test_a_cancel_after_its_request_was_answered_reaches_nobody():
    inbox = filled(generate("r"))
    assert seen_in(inbox) == [("r", False)]  # the last take says that it is done
    inbox.feed(cancel("r"))
    assert seen_in(inbox) == []


def test_cancels_take_no_room():
    inbox = filled(cancel("x") * (READ_AHEAD_REQUESTS + 1))
    assert inbox.take() is None
    assert inbox.has_room


# --- bounds -----------------------------------------------------------------------------


def test_so_many_requests_may_wait_behind_the_current_one():
    inbox = filled(*[generate(f"{n}") for n in range(READ_AHEAD_REQUESTS)])
    assert not inbox.has_room
    inbox.take()
    assert inbox.has_room
    inbox.feed(generate("one more"))
    assert not inbox.has_room


def test_what_is_beyond_the_bound_is_not_looked_at_before_there_is_room():
    lines = [generate(f"{n}") for n in range(READ_AHEAD_REQUESTS)]
    inbox = filled(b"".join(lines) + cancel("1") + generate("late"))
    waiting = inbox.waiting[1]
    assert not waiting.is_cancelled
    assert what(inbox.take()) == ("0", False)
    assert waiting.is_cancelled
    assert seen_in(inbox)[-1] == ("late", False)


@pytest.mark.parametrize("is_whole", [True, False])
def test_so_many_bytes_may_wait_behind_the_current_one(is_whole):
    line = generate("b", text="x" * READ_AHEAD_BYTES)[:READ_AHEAD_BYTES]
    inbox = filled(generate("a"))
    inbox.take()
    inbox.feed(line[:-1])
    assert inbox.has_room
    inbox.feed(line[-1:])
    assert not inbox.has_room
    if is_whole:
        inbox.feed(b'"}]}\n')
        assert not inbox.has_room
        inbox.take()
        assert inbox.has_room


def test_one_request_of_any_size_is_read_where_none_is_answered():
    inbox = filled(generate("a"), generate("b", text="x" * READ_AHEAD_BYTES)[:-1])
    inbox.take()
    assert not inbox.has_room
    assert inbox.take() is None
    assert inbox.has_room
    inbox.feed(b"\n")
    assert what(inbox.take()) == ("b", False)
    assert inbox.has_room


@pytest.mark.slow
@given(
    sizes=st.lists(st.sampled_from([0, 100, 900, 5_000]), max_size=20),
    takes=st.lists(st.booleans(), max_size=60),
)
def test_whoever_feeds_it_only_while_it_has_room_keeps_the_bounds(sizes, takes):
    sent = b"".join(generate(text="x" * size) for size in sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inferd.server.arrivals.READ_AHEAD_REQUESTS", 4)
        patch.setattr("inferd.server.arrivals.READ_AHEAD_BYTES", 1000)
        inbox = filled()
        for is_taken in takes:
            if is_taken:
                inbox.take()
            while sent and inbox.has_room:
                inbox.feed(sent[:64])
                sent = sent[64:]
            others = [each.n_bytes for each in inbox.waiting][1:]
            held = sum(others) + inbox._lines.pending_bytes
            is_idle = inbox._current is None and not inbox._arrivals
            assert len(inbox._arrivals) <= 4
            assert is_idle or held < 1064


# --- any chunking -----------------------------------------------------------------------

IDS = st.sampled_from("abc")
LINES = st.one_of(
    IDS.map(generate), IDS.map(generate), IDS.map(cancel), st.sampled_from([BAD])
)


def expected(lines: list[bytes]) -> list[Seen]:
    """Say what comes of lines that are all read before any is answered."""
    seen: list[Seen] = []
    for line in lines:
        if line == BAD:
            return [*seen, (InvalidFrameError, False)]
        name = chr(line[line.index(b'"id": "') + 7])
        if b'"cancel"' in line:
            seen = [(each, is_cancelled or each == name) for each, is_cancelled in seen]
        else:
            seen.append((name, False))
    return seen


@pytest.mark.slow
@given(lines=st.lists(LINES, max_size=20), is_cut=st.booleans(), data=st.data())
def test_any_chunking_of_the_same_bytes_gives_the_same_arrivals(lines, is_cut, data):
    sent = b"".join(lines)
    chunks = data.draw(chunked(sent[:-1] if is_cut else sent))
    inbox = filled(*[chunk for chunk in chunks if chunk], END)
    assert seen_in(inbox) == expected(lines)
    assert inbox.is_over


@pytest.mark.slow
@given(
    lines=st.lists(LINES, max_size=20), takes=st.lists(st.booleans()), data=st.data()
)
def test_whenever_requests_are_taken_they_are_the_same(lines, takes, data):
    inbox = filled()
    names: list[object] = []
    takes = iter(takes)
    for chunk in data.draw(chunked(b"".join(lines))):
        if chunk:
            inbox.feed(chunk)
        if next(takes, False) and (arrival := inbox.take()) is not None:
            names.append(what(arrival)[0])
    names += [name for name, _ in seen_in(inbox)]
    assert names == [name for name, _ in expected(lines)]


def test_requests_that_come_after_a_refusal_have_it_and_cancels_are_heard():
    inbox, refusal = filled(generate("a") + generate("b")), DrainingError()
    inbox.refuse(refusal)
    inbox.feed(cancel("a") + generate("late"))
    arrivals = [each for each in all_of(inbox) if isinstance(each, Arrival)]
    assert [each.refusal for each in arrivals] == [None, None, refusal]
    assert [each.activity.is_cancelled for each in arrivals] == [True, False, False]


# --- what comes along, and after --------------------------------------------------------


class Media:
    """An inbox that is fed as a connection of the v2 socket feeds its own."""

    def __init__(self, *chunks: bytes) -> None:
        self.custody = Custody(1000)
        self.parcels = Parcels(self.custody, PEER.uid)
        self.inbox = Inbox(decode_blocks, self._begin, places(), self.parcels)
        self.feed(*chunks)

    def feed(self, *chunks: bytes, n_fds: int = 0) -> None:
        for chunk in chunks:
            fds = tuple(memfd() for _ in range(n_fds))
            self.parcels.feed(chunk, fds)
            self.inbox.feed(chunk)
            while self.inbox.is_behind:
                self.inbox.sort()

    def taken(self) -> Activity:
        arrival = self.inbox.take()
        assert isinstance(arrival, Arrival)
        return arrival.activity

    @staticmethod
    def _begin(request: Request, n_bytes: int, parcel: Parcel) -> Activity:
        activity = begin(request, n_bytes, parcel)
        activity.appends = appends_of(request, timeout_s=1, on_taken=list)
        return activity


SOUND = {"kind": "audio", "id": "s", "sample_rate": 16000, "open": True}


def asks(request_id: str, **fields: Any) -> bytes:
    return blocks(request_id, attachments=[SOUND], **fields)


def appended_to(activity: Activity) -> int:
    return len(activity.appends._lines)


def test_a_request_has_what_came_with_its_line():
    n_before, media = n_open(), Media(blocks("a"))
    media.feed(blocks("b")[:10], n_fds=2)
    media.feed(blocks("b")[10:], blocks("c"))
    activities = [media.taken() for _ in "abc"]
    assert [len(each.fds) for each in activities] == [0, 2, 0]
    for each in activities:
        each.free()
    assert (n_open(), media.custody.n_held) == (n_before, 0)


@pytest.mark.parametrize(
    "line", [cancel("x"), append("x", bytes=""), BAD, append("x"), b"\n"]
)
def test_what_comes_with_a_line_that_is_no_request_is_closed(line):
    n_before, media = n_open(), Media(blocks("a"))
    media.feed(line, n_fds=2)
    assert n_open() == n_before


def test_what_comes_with_half_a_line_is_its_own_when_it_is_the_last():
    n_before, media = n_open(), Media()
    media.feed(blocks("a").rstrip(), n_fds=1)
    media.inbox.feed(END)
    activity = media.taken()
    assert len(activity.fds) == 1
    activity.free()
    assert n_open() == n_before


def test_a_request_with_too_many_descriptors_is_refused_and_the_next_is_not():
    media = Media()
    media.feed(blocks("a"), n_fds=33)
    media.feed(blocks("b"))
    first, second = (media.inbox.take() for _ in "ab")
    assert isinstance(first, Arrival)
    assert isinstance(first.refusal, InvalidRequestError)
    assert isinstance(second, Arrival)
    assert second.refusal is None


def test_lines_are_appended_to_the_request_they_name_whether_it_waits_or_runs():
    media = Media(asks("a"), asks("b"))
    current, [waiting] = media.taken(), media.inbox.waiting
    media.feed(
        append("b", bytes="AAAA") * 2, append("a", end=True), append("c", end=True)
    )
    assert (appended_to(current), appended_to(waiting)) == (1, 2)
    assert not current.appends.is_open
    assert waiting.appends.is_open


def test_of_requests_with_one_id_the_first_that_is_open_has_it():
    media = Media(asks("a"), asks("a"))
    first = media.taken()
    [second] = media.inbox.waiting
    media.feed(append("a", end=True), append("a", end=True))
    assert [appended_to(each) for each in (first, second)] == [1, 1]


@pytest.mark.parametrize(
    "line", [append("a", "other", bytes=""), append("a", fd=0), append("a", "s2")]
)
def test_an_append_that_cannot_be_used_ends_its_request(line):
    media = Media(asks("a"), asks("b"))
    current = media.taken()
    media.feed(line.replace(b'"s2"', b'"s2", "bytes": ""'))
    assert isinstance(current.failure, InvalidRequestError)
    assert current.scope.cancel_called
    assert not current.is_cancelled
    [waiting] = media.inbox.waiting
    assert waiting.failure is None


def test_an_append_to_a_request_that_has_failed_is_ignored_with_what_came_along():
    n_before, media = n_open(), Media(asks("a"))
    current = media.taken()
    current.fail(DrainingError())
    media.feed(append("a", fd=0), n_fds=1)
    assert n_open() == n_before
    assert isinstance(current.failure, DrainingError)


def test_where_lines_bring_no_media_an_append_is_a_line_like_any_other():
    [seen] = seen_in(filled(append("a", bytes="")))
    assert seen == (InvalidFrameError, False)


@pytest.mark.parametrize("end", [END, BAD])
def test_when_no_more_can_come_what_is_open_has_ended(end):
    media = Media(asks("a"), asks("b"))
    current = media.taken()
    media.inbox.feed(end)
    [waiting] = media.inbox.waiting
    assert not current.appends.is_open
    assert not waiting.appends.is_open
    assert current.failure is None


def test_while_much_is_appended_and_not_taken_nothing_is_read_on():
    media, line = Media(asks("a")), append("a", bytes="A" * 65_536)
    current = media.taken()
    n_lines = 0
    while media.inbox.has_room:
        media.feed(line)
        n_lines += 1
    assert n_lines == -(-READ_AHEAD_BYTES // (len(line) - 1))
    assert current.failure is None
    current.appends.close()
    assert media.inbox.has_room


def test_what_is_appended_to_a_request_that_waits_is_read_ahead_as_the_request_is():
    media, line = Media(blocks("a"), asks("b")), append("b", bytes="A" * 65_536)
    media.taken()
    while media.inbox.has_room:
        media.feed(line)
    [waiting] = media.inbox.waiting
    assert waiting.appends.pending_bytes < READ_AHEAD_BYTES + len(line)
    assert media.taken() is waiting
    assert not media.inbox.has_room
    waiting.appends.close()
    assert media.inbox.has_room


def test_descriptors_are_read_ahead_up_to_a_bound():
    n_before, media = n_open(), Media(blocks("a"))
    media.taken()
    while media.inbox.has_room:
        media.feed(blocks("b"), n_fds=16)
    assert n_open() - n_before == 64
    for each in media.inbox.waiting:
        each.free()
    assert n_open() == n_before


def test_the_descriptors_of_a_line_that_has_not_ended_are_read_ahead_as_well():
    media = Media(blocks("a"))
    media.taken()
    media.feed(blocks("b"), n_fds=32)
    media.feed(b"{", n_fds=31)
    assert media.inbox.has_room
    media.feed(b" ", n_fds=1)
    assert not media.inbox.has_room
    media.parcels.close()
    for each in media.inbox.waiting:
        each.free()


def test_an_append_to_a_request_that_is_over_is_no_fault_of_it():
    media = Media(asks("a"))
    current = media.taken()
    current.free()
    media.feed(append("a", bytes="AAAA"))
    assert current.failure is None


@pytest.mark.parametrize(
    "behind", [b"x" * READ_AHEAD_BYTES, blocks("b") * READ_AHEAD_REQUESTS]
)
def test_an_open_request_ends_when_its_appends_can_be_read_no_more(behind):
    media = Media(asks("a"))
    current = media.taken()
    media.feed(behind)
    assert isinstance(current.failure, InvalidRequestError)
    assert media.inbox.take() is not None or media.inbox.has_room


def test_a_request_that_is_not_open_minds_no_long_line_behind_it():
    media = Media(asks("a") + append("a", end=True))
    current = media.taken()
    media.feed(b"x" * READ_AHEAD_BYTES)
    assert current.failure is None


# --- lines that have begun --------------------------------------------------------------


def test_a_line_that_has_begun_has_the_number_of_those_before_it():
    inbox = filled()
    assert inbox.unfinished is None
    inbox.feed(b'{"mess')
    assert inbox.unfinished == 0
    inbox.feed(b"\n")
    assert inbox.unfinished is None
    assert filled(cancel("a") + cancel("b") + b"x").unfinished == 2


def test_a_line_is_large_from_a_bound_on():
    inbox = filled(b"x" * (LARGE_LINE_BYTES - 1))
    assert not inbox.is_large
    inbox.feed(b"x")
    assert inbox.is_large


@pytest.mark.parametrize("before", [generate("a"), BAD])
def test_a_line_behind_others_is_not_large_before_its_turn(before):
    inbox = filled(before + b"x" * LARGE_LINE_BYTES)
    assert not inbox.is_large


def test_a_line_is_not_large_while_a_request_is_answered():
    inbox = filled(generate("a") + b"x" * LARGE_LINE_BYTES)
    assert inbox.take() is not None
    assert not inbox.is_large
    assert inbox.take() is None
    assert inbox.is_large


def test_a_line_that_is_whole_or_will_not_be_is_not_large():
    large = generate("a", "x" * LARGE_LINE_BYTES)
    inbox = filled(large[:-1])
    assert inbox.is_large
    inbox.feed(large[-1:])
    assert not inbox.is_large
    cut_off = filled(large[:-1])
    cut_off.cut_off()
    assert not cut_off.is_large
    ended = filled(large[:-1], END)
    assert not ended.is_large
