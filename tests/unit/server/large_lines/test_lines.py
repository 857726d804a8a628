import pytest
from hypothesis import given, strategies as st

from inferd.errors import FrameTooLargeError
from inferd.limits.connections import READ_BYTES
from inferd.server.large_lines.lines import LargeLine, LineBuffer

APART = 50


def taken(lines: LineBuffer) -> list[bytes]:
    found: list[bytes] = []
    while (line := lines.next_line()) is not None:
        found.append(whole(line))
    return found


def whole(line: bytes | LargeLine) -> bytes:
    if isinstance(line, LargeLine):
        data = b"".join(line.parts)
        assert len(data) == line.n_bytes >= APART
        return data
    assert len(line) < APART
    return line


@given(
    st.lists(st.integers(0, 3 * APART), max_size=20),
    st.lists(st.integers(1, 2 * APART), min_size=1),
)
def test_any_chunking_gives_the_same_lines_and_long_ones_are_marked(sizes, cuts):
    texts = [bytes([65 + n % 26]) * size for n, size in enumerate(sizes)]
    data = b"".join(text + b"\n" for text in texts)[:-1]
    lines, found, n_fed = LineBuffer(APART), list[bytes](), 0
    while n_fed < len(data):
        for cut in cuts:
            lines.feed(data[n_fed : n_fed + cut])
            n_fed += cut
            found += taken(lines)
            n_taken = sum(len(each) + 1 for each in found)
            assert lines.pending_bytes == len(data[:n_fed]) - n_taken
    if rest := lines.last_line():
        found.append(whole(rest))
    assert found == texts[: len(found)]
    assert not any(texts[len(found) :])


def test_small_reads_of_a_long_line_are_joined_into_parts():
    lines = LineBuffer(APART)
    for _ in range(READ_BYTES + 10):
        lines.feed(b"x")
        assert lines.next_line() is None
    assert len(lines._parts) == 2


def test_a_long_line_over_the_cap_is_refused(monkeypatch):
    monkeypatch.setattr("inferd.server.large_lines.lines.MAX_FRAME_BYTES", 100)
    lines = LineBuffer(APART)
    lines.feed(b"x" * 60)
    assert lines.next_line() is None
    lines.feed(b"x" * 40)
    assert lines.next_line() is None
    lines.feed(b"x")
    with pytest.raises(FrameTooLargeError):
        lines.next_line()
