from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from inferd import surfaces
from inferd.errors import (
    DrainingError,
    FrameTooLargeError,
    InvalidFrameError,
    InvalidRequestError,
    PeerError,
)
from inferd.limits.connections import (
    LIMITED_LINE_BYTES,
    READ_AHEAD_BYTES,
    READ_AHEAD_REQUESTS,
)
from inferd.server.connection.read_ahead import (
    PendingRequest,
    ReadAheadCounter,
    ReadAheadQueue,
)
from inferd.server.connection.request_reader import RequestReader
from inferd.server.fd_passing.quota import FdQuota, LineFds
from inferd.server.fd_passing.receive import FdsByLine
from inferd.server.identity.peer import Peer
from inferd.server.media.append_queue import make_append_queue
from inferd.server.request_context import RequestContext
from inferd.wire.codec import decode_blocks, decode_generate
from inferd.wire.framing import LineSplitter
from inferd.wire.requests import GenerateRequest, Request
from tests.cases import each_case
from tests.fakes.fds import memfd, n_open
from tests.fakes.streams import append, blocks, cancel, generate
from tests.unit.strategies import chunked

PEER = Peer(pid=17, uid=1000, gid=100)
BAD = b"no JSON\n"
END = b""

Taken = PendingRequest[GenerateRequest] | PeerError
Seen = tuple[str | type[PeerError], bool]


def make_context(request: Request, n_bytes: int, line_fds: LineFds) -> RequestContext:
    return RequestContext(
        PEER, surfaces.INFER, request.id, 0.0, n_bytes, line_fds=line_fds
    )


def make_queue() -> ReadAheadQueue[Any]:
    return ReadAheadQueue(ReadAheadCounter(), PEER.user)


def filled(*chunks: bytes) -> RequestReader[GenerateRequest]:
    reader = RequestReader(decode_generate, make_context, make_queue())
    for chunk in chunks:
        reader.feed(chunk)
    return reader


def all_of(reader: RequestReader[GenerateRequest]) -> Iterator[Taken]:
    return iter(reader.take, None)


def what(item: Taken | None) -> Seen:
    """Return a request's id or an error's class, and whether it is cancelled."""
    assert item is not None
    if isinstance(item, PeerError):
        return type(item), False
    return item.request.id, item.context.is_cancelled


def seen_in(reader: RequestReader[GenerateRequest]) -> list[Seen]:
    return [what(item) for item in all_of(reader)]


# --- what changes -----------------------------------------------------------------------


@given(st.data())
def test_input_that_is_told_to_change_nothing_only_makes_a_line_longer(data):
    sent = b"".join(
        data.draw(st.lists(st.sampled_from([generate("a"), cancel("a"), BAD])))
    )
    reader = filled()
    for chunk in [*data.draw(chunked(sent)), END]:
        before = len(reader._queue), reader.unfinished_line
        if not reader.feed(chunk):
            assert before == (len(reader._queue), reader.unfinished_line)
            assert not reader.is_over


def test_only_the_beginning_and_the_end_of_a_line_change_anything():
    line = generate("a")
    chunks = line[:3], line[3:6], line[6:-1], line[-1:], END
    reader = filled()
    assert [reader.feed(each) for each in chunks] == [True, False, False, True, True]


# --- order ------------------------------------------------------------------------------


def test_requests_come_out_in_the_order_they_came_in():
    reader = filled(generate("a") + generate("b"), generate("c"))
    assert seen_in(reader) == [("a", False), ("b", False), ("c", False)]
    assert reader.take() is None
    assert not reader.is_over


def test_each_request_has_a_context_of_its_own_from_when_it_was_read():
    begun: list[tuple[str, int]] = []

    def note(request: Request, n_bytes: int, line_fds: LineFds) -> RequestContext:
        begun.append((request.id, n_bytes))
        return make_context(request, n_bytes, line_fds)

    reader = RequestReader(decode_generate, note, make_queue())
    reader.feed(generate("a") + generate("b") + generate("c")[:10])
    assert begun == [(each, len(generate(each)) - 1) for each in "ab"]
    first, second = reader._queue
    assert first is not second
    assert [first.request_id, second.request_id] == ["a", "b"]
    assert reader.take() is not None
    assert list(reader._queue) == [second]


@each_case("bad", [BAD, b"\n", b"{}\n", cancel().replace(b'"r"', b"7")])
def test_a_bad_line_comes_out_in_order_and_nothing_behind_it_is_read(bad):
    reader = filled(generate("a") + bad + generate("b"), generate("c"), END)
    assert seen_in(reader) == [("a", False), (InvalidFrameError, False)]
    assert reader.is_over


def test_a_cancel_behind_a_bad_line_has_no_effect():
    assert seen_in(filled(generate("a") + BAD + cancel("a")))[0] == ("a", False)


def test_a_bad_line_makes_no_context():
    reader = filled(generate("a") + BAD)
    assert [each.request_id for each in reader._queue] == ["a"]


def test_a_line_over_the_cap_comes_out_in_order_too(monkeypatch):
    splitter = partial(LineSplitter, 200)
    monkeypatch.setattr("inferd.server.large_lines.lines.LineSplitter", splitter)
    reader = filled(generate("a") + b"x" * 201)
    assert seen_in(reader) == [("a", False), (FrameTooLargeError, False)]
    assert reader.is_over


# --- ends -------------------------------------------------------------------------------


def test_half_a_line_at_the_clients_end_is_a_request():
    reader = filled(generate("a") + generate("b").rstrip())
    assert what(reader.take()) == ("a", False)
    reader.feed(END)
    assert not reader.is_over
    assert seen_in(reader) == [("b", False)]
    assert reader.is_over


def test_half_a_cancel_at_the_clients_end_is_a_cancel():
    reader = filled(generate("a") + cancel("a").rstrip(), END)
    assert seen_in(reader) == [("a", True)]
    assert reader.is_over


def test_a_client_that_ends_between_lines_is_over_at_once():
    assert filled(END).is_over


def test_half_a_line_that_the_daemon_cut_off_is_no_request():
    reader = filled(generate("a") + generate("b") + generate("c")[:-2])
    reader.mark_shut_down()
    reader.feed(END)
    assert not reader.accepts_more
    assert seen_in(reader) == [("a", False), ("b", False)]
    assert reader.is_over


def test_a_whole_request_that_the_daemon_cut_off_at_its_newline_is_one():
    reader = filled(generate("a") + generate("b")[:-1])
    reader.mark_shut_down()
    reader.feed(END)
    assert seen_in(reader) == [("a", False), ("b", False)]


def test_an_invalid_line_is_reported_shut_down_or_not():
    reader = filled(generate("a"))
    reader.mark_shut_down()
    reader.feed(BAD)
    reader.feed(END)
    assert seen_in(reader) == [("a", False), (InvalidFrameError, False)]
    assert reader.is_over


def test_a_closed_reader_has_nothing_more():
    reader = filled(generate("a") + b'{"mess')
    reader.close()
    assert not reader.accepts_more
    assert seen_in(reader) == [("a", False)]
    assert reader.is_over


def test_after_its_end_a_client_is_not_read():
    reader = filled(generate("a"), END)
    assert not reader.accepts_more
    assert seen_in(reader) == [("a", False)]
    assert not reader.accepts_more


# --- cancels ----------------------------------------------------------------------------


def test_a_cancel_reaches_the_current_one_and_all_that_wait():
    reader = filled(generate("r") + generate("r") + generate("other") + generate("r"))
    current = reader.take()
    reader.feed(cancel("r"))
    assert what(current) == ("r", True)
    assert seen_in(reader) == [("r", True), ("other", False), ("r", True)]


def test_a_cancel_right_behind_its_request_reaches_it():
    assert seen_in(filled(generate("r") + cancel("r"))) == [("r", True)]


def test_a_cancel_reaches_nobody_who_comes_after_it():
    assert seen_in(filled(cancel("r") + generate("r"))) == [("r", False)]


@each_case("unknown", ["", "x", "R", "r "])
def test_a_cancel_of_an_unknown_id_is_nothing(unknown):
    assert seen_in(filled(generate("r") + cancel(unknown))) == [("r", False)]


def test_a_cancel_after_its_request_was_answered_reaches_nobody():
    reader = filled(generate("r"))
    assert seen_in(reader) == [("r", False)]  # the last take says that it is done
    reader.feed(cancel("r"))
    assert seen_in(reader) == []


def test_cancels_do_not_count_as_requests_read_ahead():
    reader = filled(cancel("x") * (READ_AHEAD_REQUESTS + 1))
    assert reader.take() is None
    assert reader.accepts_more


# --- bounds -----------------------------------------------------------------------------


def test_so_many_requests_may_wait_behind_the_current_one():
    reader = filled(*[generate(f"{n}") for n in range(READ_AHEAD_REQUESTS)])
    assert not reader.accepts_more
    reader.take()
    assert reader.accepts_more
    reader.feed(generate("one more"))
    assert not reader.accepts_more


def test_lines_over_the_bound_are_not_parsed_before_requests_are_taken():
    lines = [generate(f"{n}") for n in range(READ_AHEAD_REQUESTS)]
    reader = filled(b"".join(lines) + cancel("1") + generate("late"))
    waiting = list(reader._queue)[1]
    assert not waiting.is_cancelled
    assert what(reader.take()) == ("0", False)
    assert waiting.is_cancelled
    assert seen_in(reader)[-1] == ("late", False)


@pytest.mark.parametrize("is_whole", [True, False])
def test_so_many_bytes_may_wait_behind_the_current_one(is_whole):
    line = generate("b", text="x" * READ_AHEAD_BYTES)[:READ_AHEAD_BYTES]
    reader = filled(generate("a"))
    reader.take()
    reader.feed(line[:-1])
    assert reader.accepts_more
    reader.feed(line[-1:])
    assert not reader.accepts_more
    if is_whole:
        reader.feed(b'"}]}\n')
        assert not reader.accepts_more
        reader.take()
        assert reader.accepts_more


def test_one_request_of_any_size_is_read_where_none_is_answered():
    reader = filled(generate("a"), generate("b", text="x" * READ_AHEAD_BYTES)[:-1])
    reader.take()
    assert not reader.accepts_more
    assert reader.take() is None
    assert reader.accepts_more
    reader.feed(b"\n")
    assert what(reader.take()) == ("b", False)
    assert reader.accepts_more


@pytest.mark.slow
@given(
    sizes=st.lists(st.sampled_from([0, 100, 900, 5_000]), max_size=20),
    takes=st.lists(st.booleans(), max_size=60),
)
def test_the_bounds_hold_if_it_is_fed_only_while_it_accepts_more(sizes, takes):
    sent = b"".join(generate(text="x" * size) for size in sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inferd.server.connection.read_ahead.READ_AHEAD_REQUESTS", 4)
        patch.setattr("inferd.server.connection.read_ahead.READ_AHEAD_BYTES", 1000)
        reader = filled()
        for is_taken in takes:
            if is_taken:
                reader.take()
            while sent and reader.accepts_more:
                reader.feed(sent[:64])
                sent = sent[64:]
            others = [each.n_bytes for each in reader._queue][1:]
            held = sum(others) + reader._lines.pending_bytes
            is_idle = reader._current is None and not reader._queue
            assert len(reader._queue) <= 4
            assert is_idle or held < 1064


# --- any chunking -----------------------------------------------------------------------

IDS = st.sampled_from("abc")
LINES = st.one_of(
    IDS.map(generate), IDS.map(generate), IDS.map(cancel), st.sampled_from([BAD])
)


def expected(lines: list[bytes]) -> list[Seen]:
    """Parse lines that are all read before any is answered."""
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
def test_any_chunking_of_the_same_bytes_gives_the_same_requests(lines, is_cut, data):
    sent = b"".join(lines)
    chunks = data.draw(chunked(sent[:-1] if is_cut else sent))
    reader = filled(*[chunk for chunk in chunks if chunk], END)
    assert seen_in(reader) == expected(lines)
    assert reader.is_over


@pytest.mark.slow
@given(
    lines=st.lists(LINES, max_size=20), takes=st.lists(st.booleans()), data=st.data()
)
def test_whenever_requests_are_taken_they_are_the_same(lines, takes, data):
    reader = filled()
    names: list[object] = []
    takes = iter(takes)
    for chunk in data.draw(chunked(b"".join(lines))):
        if chunk:
            reader.feed(chunk)
        if next(takes, False) and (item := reader.take()) is not None:
            names.append(what(item)[0])
    names += [name for name, _ in seen_in(reader)]
    assert names == [name for name, _ in expected(lines)]


def test_requests_that_come_after_a_refusal_have_it_and_cancels_are_heard():
    reader, refusal = filled(generate("a") + generate("b")), DrainingError()
    reader.refuse_new(refusal)
    reader.feed(cancel("a") + generate("late"))
    items = [each for each in all_of(reader) if isinstance(each, PendingRequest)]
    assert [each.refusal for each in items] == [None, None, refusal]
    assert [each.context.is_cancelled for each in items] == [True, False, False]


# --- descriptors and appends ------------------------------------------------------------


class Media:
    """A reader that is fed as a connection of the v2 socket feeds it."""

    def __init__(self, *chunks: bytes) -> None:
        self.fd_quota = FdQuota(1000)
        self.fds_by_line = FdsByLine(self.fd_quota, PEER.uid)
        self.reader = RequestReader(
            decode_blocks, self._make_context, make_queue(), self.fds_by_line
        )
        self.feed(*chunks)

    def feed(self, *chunks: bytes, n_fds: int = 0) -> None:
        for chunk in chunks:
            fds = tuple(memfd() for _ in range(n_fds))
            self.fds_by_line.feed(chunk, fds)
            self.reader.feed(chunk)
            while self.reader.has_more_lines:
                self.reader.parse_lines()

    def taken(self) -> RequestContext:
        item = self.reader.take()
        assert isinstance(item, PendingRequest)
        return item.context

    @staticmethod
    def _make_context(
        request: Request, n_bytes: int, line_fds: LineFds
    ) -> RequestContext:
        context = make_context(request, n_bytes, line_fds)
        context.appends = make_append_queue(request, timeout_s=1, on_taken=list)
        return context


SOUND = {"kind": "audio", "id": "s", "sample_rate": 16000, "open": True}


def asks(request_id: str, **fields: Any) -> bytes:
    return blocks(request_id, attachments=[SOUND], **fields)


def appended_to(context: RequestContext) -> int:
    return len(context.appends._lines)


def test_a_request_has_what_came_with_its_line():
    n_before, media = n_open(), Media(blocks("a"))
    media.feed(blocks("b")[:10], n_fds=2)
    media.feed(blocks("b")[10:], blocks("c"))
    contexts = [media.taken() for _ in "abc"]
    assert [len(each.fds) for each in contexts] == [0, 2, 0]
    for each in contexts:
        each.release()
    assert (n_open(), media.fd_quota.n_held) == (n_before, 0)


@each_case("line", [cancel("x"), append("x", bytes=""), BAD, append("x"), b"\n"])
def test_what_comes_with_a_line_that_is_no_request_is_closed(line):
    n_before, media = n_open(), Media(blocks("a"))
    media.feed(line, n_fds=2)
    assert n_open() == n_before


def test_what_comes_with_half_a_line_is_its_own_when_it_is_the_last():
    n_before, media = n_open(), Media()
    media.feed(blocks("a").rstrip(), n_fds=1)
    media.reader.feed(END)
    context = media.taken()
    assert len(context.fds) == 1
    context.release()
    assert n_open() == n_before


def test_a_request_with_too_many_descriptors_is_refused_and_the_next_is_not():
    media = Media()
    media.feed(blocks("a"), n_fds=33)
    media.feed(blocks("b"))
    first, second = (media.reader.take() for _ in "ab")
    assert isinstance(first, PendingRequest)
    assert isinstance(first.refusal, InvalidRequestError)
    assert isinstance(second, PendingRequest)
    assert second.refusal is None


def test_lines_are_appended_to_the_request_they_name_whether_it_waits_or_runs():
    media = Media(asks("a"), asks("b"))
    current, [waiting] = media.taken(), media.reader._queue
    media.feed(
        append("b", bytes="AAAA") * 2, append("a", end=True), append("c", end=True)
    )
    assert (appended_to(current), appended_to(waiting)) == (1, 2)
    assert not current.appends.is_open
    assert waiting.appends.is_open


def test_of_requests_with_one_id_the_first_that_is_open_has_it():
    media = Media(asks("a"), asks("a"))
    first = media.taken()
    [second] = media.reader._queue
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
    [waiting] = media.reader._queue
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
    media.reader.feed(end)
    [waiting] = media.reader._queue
    assert not current.appends.is_open
    assert not waiting.appends.is_open
    assert current.failure is None


def test_while_much_is_appended_and_not_taken_nothing_is_read_on():
    media, line = Media(asks("a")), append("a", bytes="A" * 65_536)
    current = media.taken()
    n_lines = 0
    while media.reader.accepts_more:
        media.feed(line)
        n_lines += 1
    assert n_lines == -(-READ_AHEAD_BYTES // (len(line) - 1))
    assert current.failure is None
    current.appends.close()
    assert media.reader.accepts_more


def test_what_is_appended_to_a_request_that_waits_is_read_ahead_as_the_request_is():
    media, line = Media(blocks("a"), asks("b")), append("b", bytes="A" * 65_536)
    media.taken()
    while media.reader.accepts_more:
        media.feed(line)
    [waiting] = media.reader._queue
    assert waiting.appends.pending_bytes < READ_AHEAD_BYTES + len(line)
    assert media.taken() is waiting
    assert not media.reader.accepts_more
    waiting.appends.close()
    assert media.reader.accepts_more


def test_descriptors_are_read_ahead_up_to_a_bound():
    n_before, media = n_open(), Media(blocks("a"))
    media.taken()
    while media.reader.accepts_more:
        media.feed(blocks("b"), n_fds=16)
    assert n_open() - n_before == 64
    for each in media.reader._queue:
        each.release()
    assert n_open() == n_before


def test_the_descriptors_of_a_line_that_has_not_ended_are_read_ahead_as_well():
    media = Media(blocks("a"))
    media.taken()
    media.feed(blocks("b"), n_fds=32)
    media.feed(b"{", n_fds=31)
    assert media.reader.accepts_more
    media.feed(b" ", n_fds=1)
    assert not media.reader.accepts_more
    media.fds_by_line.close()
    for each in media.reader._queue:
        each.release()


def test_an_append_to_a_request_that_is_over_is_no_fault_of_it():
    media = Media(asks("a"))
    current = media.taken()
    current.release()
    media.feed(append("a", bytes="AAAA"))
    assert current.failure is None


@pytest.mark.parametrize(
    "behind", [b"x" * READ_AHEAD_BYTES, blocks("b") * READ_AHEAD_REQUESTS]
)
def test_an_open_request_ends_when_no_more_appends_can_be_read(behind):
    media = Media(asks("a"))
    current = media.taken()
    media.feed(behind)
    assert isinstance(current.failure, InvalidRequestError)
    assert media.reader.take() is not None or media.reader.accepts_more


def test_a_long_line_behind_a_request_that_is_not_open_has_no_effect_on_it():
    media = Media(asks("a") + append("a", end=True))
    current = media.taken()
    media.feed(b"x" * READ_AHEAD_BYTES)
    assert current.failure is None


# --- unfinished lines -------------------------------------------------------------------


def test_a_line_that_has_begun_has_the_number_of_those_before_it():
    reader = filled()
    assert reader.unfinished_line is None
    reader.feed(b'{"mess')
    assert reader.unfinished_line == 0
    reader.feed(b"\n")
    assert reader.unfinished_line is None
    assert filled(cancel("a") + cancel("b") + b"x").unfinished_line == 2


def test_a_line_is_large_from_a_bound_on():
    reader = filled(b"x" * (LIMITED_LINE_BYTES - 1))
    assert not reader.is_in_limited_line
    reader.feed(b"x")
    assert reader.is_in_limited_line


@pytest.mark.parametrize("before", [generate("a"), BAD])
def test_a_line_behind_others_is_not_large_before_its_turn(before):
    reader = filled(before + b"x" * LIMITED_LINE_BYTES)
    assert not reader.is_in_limited_line


def test_a_line_is_not_large_while_a_request_is_answered():
    reader = filled(generate("a") + b"x" * LIMITED_LINE_BYTES)
    assert reader.take() is not None
    assert not reader.is_in_limited_line
    assert reader.take() is None
    assert reader.is_in_limited_line


def test_a_line_that_is_whole_or_will_not_be_is_not_large():
    large = generate("a", "x" * LIMITED_LINE_BYTES)
    reader = filled(large[:-1])
    assert reader.is_in_limited_line
    reader.feed(large[-1:])
    assert not reader.is_in_limited_line
    cut_off = filled(large[:-1])
    cut_off.mark_shut_down()
    assert not cut_off.is_in_limited_line
    ended = filled(large[:-1], END)
    assert not ended.is_in_limited_line
