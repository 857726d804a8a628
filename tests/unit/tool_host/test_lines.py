import pytest
from hypothesis import given, settings, strategies as st

from inferd.config.tools import MAX_TOOL_LINE_BYTES
from inferd.tool_host.lines import ToolServerError, lines_of


class Stream:
    def __init__(self, parts):
        self.parts = iter(parts)

    def __aiter__(self):
        return self

    async def __anext__(self):
        for part in self.parts:
            return part
        raise StopAsyncIteration


@settings(max_examples=30)
@given(
    st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b""))),
    st.data(),
)
def test_lines_are_the_same_however_they_come(lines, data):
    sent = b"".join(line + b"\n" for line in lines)
    cut = data.draw(st.integers(0, len(sent)))

    async def read():
        return [
            line async for line in lines_of(Stream([sent[:cut], sent[cut:], b"rest"]))
        ]

    found = read()
    with pytest.raises(StopIteration) as ended:
        found.send(None)
    assert ended.value.value == lines


async def test_a_line_without_an_end_is_refused_at_the_bound():
    part = b"x" * (MAX_TOOL_LINE_BYTES // 2)
    lines = lines_of(Stream([part, part, b"y", b"\n"]))
    with pytest.raises(ToolServerError, match="over 1048576 bytes"):
        await anext(lines)
