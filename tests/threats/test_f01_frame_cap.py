import pytest

from inferd.limits import MAX_FRAME_BYTES, READ_BYTES
from inferd.server import connection
from inferd.wire.framing import LineSplitter
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import House
from tests.fakes.streams import generate

CHUNK = b" " * 1024 * 1024


class MeasuredSplitter(LineSplitter):
    """Notes the most bytes that any connection held."""

    most_bytes = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        super().feed(data)
        held = max(MeasuredSplitter.most_bytes, self.pending_bytes)
        MeasuredSplitter.most_bytes = held


def test_a_line_may_have_64_mib():
    assert MAX_FRAME_BYTES == 64 * 1024 * 1024


@pytest.mark.slow
async def test_a_line_without_end_is_cut_off_at_the_cap(monkeypatch, autojump_clock):
    monkeypatch.setattr(connection, "LineSplitter", MeasuredSplitter)
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        for _ in range(MAX_FRAME_BYTES // len(CHUNK)):
            await client.send(CHUNK)
        await client.send(b" ")
        [frame] = await client.rest()
    assert (frame["id"], frame["code"]) == ("", "frame_too_large")
    assert MeasuredSplitter.most_bytes <= MAX_FRAME_BYTES + READ_BYTES


@pytest.mark.slow
async def test_a_line_of_just_the_cap_is_read(autojump_clock):
    line = generate("r")
    padding = MAX_FRAME_BYTES - len(line.rstrip(b"\n"))
    async with House(ScriptedBackend()).opened() as house, house.connect() as client:
        for _ in range(padding // len(CHUNK)):
            await client.send(CHUNK)
        await client.send(b" " * (padding % len(CHUNK)) + line)
        assert (await client.answer())[-1]["type"] == "done"
