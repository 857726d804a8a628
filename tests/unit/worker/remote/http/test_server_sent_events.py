import pytest
from hypothesis import given, strategies as st

from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.http.server_sent_events import EventSplitter

TEXTS = st.binary(min_size=1, max_size=20).filter(lambda b: not set(b) & {10, 13})


@given(st.lists(TEXTS, max_size=5), st.sampled_from([b"\n", b"\r\n"]), st.data())
def test_events_are_the_same_however_their_bytes_come(texts, end, data):
    stream = b": comment" + end + end
    for text in texts:
        stream += b"id: 1" + end + b"data: " + text + end + end
    splitter = EventSplitter(100)
    found: list[bytes] = []
    while stream:
        n_bytes = data.draw(st.integers(1, len(stream)))
        found += splitter.feed(stream[:n_bytes])
        stream = stream[n_bytes:]
    assert found == texts


def test_lines_of_one_event_are_joined():
    assert [*EventSplitter(99).feed(b"data: a\ndata:b\n\n")] == [b"a\nb"]


@pytest.mark.parametrize(
    "data", [b"data: 1234567", b"data: 12345\ndata: 6789\n", b":" * 11]
)
def test_a_line_and_an_event_are_bounded_whole_or_not(data):
    splitter = EventSplitter(10)
    with pytest.raises(RemoteError, match="over 10 bytes"):
        for byte in data:
            assert not [*splitter.feed(bytes([byte]))]
