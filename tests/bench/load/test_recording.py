from hypothesis import given, strategies as st

from bench.load.recording import Recording, lines


@given(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=20))
def test_each_byte_came_with_the_read_that_brought_it(reads):
    recording = Recording()
    for moment, data in enumerate(reads):
        recording.add(data, float(moment))
    came_with = [moment for moment, data in enumerate(reads) for _ in data]
    ends = range(1, len(came_with) + 1)
    assert [recording.moment_of(end) for end in ends] == came_with


@given(st.lists(st.binary(max_size=5)))
def test_lines_are_what_newlines_end_and_tell_where(parts):
    data = b"\n".join(parts)
    found = lines(data)
    assert (
        b"".join(line.text + b"\n" for line in found) == data[: data.rfind(b"\n") + 1]
    )
    assert [data[line.end - 1 : line.end] for line in found] == [b"\n"] * len(found)
