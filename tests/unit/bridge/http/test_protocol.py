"""The parser of heads, fed in any parts."""

import h11
from hypothesis import given, strategies as st

from inferd.bridge.http.protocol import RequestParser

HEADS = (
    b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\na\nb\n\n\n",
)
BAD = (
    b"GET / HTTP/1.1\r\nHost: x\n\r\n\r\n",
    b"GET / HTTP/1.1\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nA: b\n\r\n\r\n",
)
PARTS = st.lists(st.integers(1, 40), max_size=30)


def parse(data: bytes, sizes: list[int]) -> tuple[int, bool]:
    """Return how many requests there are, and whether one is refused."""
    parser = RequestParser(4096)
    n_requests = at = 0
    for size in [*sizes, len(data)]:
        if part := data[at : at + size]:
            parser.receive_data(part)
        at += size
        try:
            while (event := parser.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Request):
                    n_requests += 1
                if isinstance(event, h11.EndOfMessage):
                    headers = [("content-length", "0")]
                    parser.send(h11.Response(status_code=200, headers=headers))
                    parser.send(h11.EndOfMessage())
                    parser.start_next_cycle()
        except h11.RemoteProtocolError:
            return n_requests, True
    return n_requests, False


@given(heads=st.lists(st.sampled_from(HEADS), max_size=4), sizes=PARTS)
def test_good_heads_are_taken_and_a_line_that_ends_by_lf_alone_is_not(heads, sizes):
    good = b"".join(heads)
    assert parse(good, sizes) == (len(heads), False)
    for bad in BAD:
        assert parse(good + bad, sizes) == (len(heads), True)


def test_a_head_that_comes_byte_by_byte_is_not_copied_each_time():
    copied = 0

    class Counted(RequestParser):
        @property
        def trailing_data(self) -> tuple[bytes, bool]:
            nonlocal copied
            found = super().trailing_data
            copied += len(found[0])
            return found

    parser = Counted(4096)
    for byte in b"GET / HTTP/1.1\r\nA: " + b"x" * 1000:
        parser.receive_data(bytes([byte]))
        assert parser.next_event() is h11.NEED_DATA
    assert copied < 10
