from typing import Any

import pytest
import trio

from inferd.backend.capabilities import BackendCapabilities
from inferd.errors import InvalidRequestError
from inferd.limits.connections import READ_AHEAD_BYTES, READ_AHEAD_REQUESTS, READ_BYTES
from inferd.limits.protocol import (
    MAX_ERROR_CHARS,
    MAX_FRAME_BYTES,
    MAX_INPUT_TOKENS,
    MAX_UNKNOWN_FIELD_CHARS,
)
from inferd.resolve.v2 import resolve_v2
from inferd.server.large_lines import lines
from inferd.wire.blocks import BlocksRequest
from inferd.wire.framing import LineSplitter
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.serving import LocalServer
from tests.fakes.streams import REQUESTS, blocks, embed, generate

CHUNK = b" " * 1024 * 1024
KERNEL_BYTES = 512 * 1024
"""More than the kernel holds for one connection that nobody reads."""


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
@pytest.mark.parametrize("leaf", REQUESTS)
async def test_a_line_without_end_is_cut_off_at_the_cap(
    monkeypatch, autojump_clock, leaf
):
    monkeypatch.setattr(lines, "LineSplitter", MeasuredSplitter)
    monkeypatch.setattr(MeasuredSplitter, "most_bytes", 0)
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect(leaf) as client,
    ):
        for _ in range(MAX_FRAME_BYTES // len(CHUNK)):
            await client.send(CHUNK)
        await client.send(b" ")
        [frame] = await client.rest()
    assert (frame["id"], frame["code"]) == ("", "frame_too_large")
    assert MeasuredSplitter.most_bytes > MAX_FRAME_BYTES
    assert MeasuredSplitter.most_bytes <= MAX_FRAME_BYTES + READ_BYTES


@pytest.mark.slow
async def test_a_line_of_just_the_cap_is_read(autojump_clock):
    line = generate("r")
    padding = MAX_FRAME_BYTES - len(line.rstrip(b"\n"))
    async with (
        LocalServer(ScriptedBackend()).opened() as server,
        server.connect() as client,
    ):
        for _ in range(padding // len(CHUNK)):
            await client.send(CHUNK)
        await client.send(b" " * (padding % len(CHUNK)) + line)
        assert (await client.answer())[-1]["type"] == "done"


@pytest.mark.parametrize("n_bytes", [1, 10_000, 600_000])
async def test_what_is_read_ahead_of_an_answer_is_bounded(autojump_clock, n_bytes):
    server = LocalServer(ScriptedBackend(Script(token_delay_s=FOR_EVER)))
    line = generate("r", "x" * n_bytes)
    n_lines = 16 * 1024 * 1024 // len(line)
    n_taken = 0
    async with server.opened(), server.connect() as client:
        with trio.move_on_after(5) as scope:
            for _ in range(n_lines):
                await client.send(line)
                n_taken += 1
        assert scope.cancelled_caught
        [connection] = server.connections
        assert len(connection._reader._queue) <= READ_AHEAD_REQUESTS
    read_ahead = min(READ_AHEAD_BYTES, READ_AHEAD_REQUESTS * len(line))
    assert n_taken * len(line) <= read_ahead + 2 * len(line) + KERNEL_BYTES


# --- what a line may ask for ------------------------------------------------------------


async def refusal_of(leaf: str, line: bytes, *, n_embd: int = 2):
    """Send a line; give its refusal, and whether the next request is served."""
    able = BackendCapabilities(v2=True, embed=True, vision=True, n_embd=n_embd)
    backend = ScriptedBackend(capabilities=able)
    async with LocalServer(backend).opened() as server, server.connect(leaf) as client:
        await client.send(line)
        [frame] = await client.answer()
        assert backend.counts.started == 0
        return frame, (await client.ask("next"))[-1]["type"] in ("done", "embeddings")


def attachments(n: int, data: str = "") -> list[dict[str, object]]:
    """Images of these bytes."""
    image = {"kind": "image", "width": 1, "height": 1, "bytes": data}
    return [{**image, "id": str(number)} for number in range(n)]


async def test_too_many_attachments_cost_the_request_alone(autojump_clock):
    line = blocks("r", attachments=attachments(33))
    frame, is_kept = await refusal_of("infer.v2.sock", line)
    assert (frame["id"], frame["code"]) == ("r", "invalid_request")
    assert is_kept


async def test_too_large_attachments_cost_the_request_alone(
    monkeypatch, autojump_clock
):
    monkeypatch.setattr("inferd.resolve.content.MAX_ATTACHMENT_BYTES", 99)
    line = blocks("r", attachments=attachments(10, "x" * 10))
    frame, is_kept = await refusal_of("infer.v2.sock", line)
    assert (frame["id"], frame["code"]) == ("r", "frame_too_large")
    assert is_kept


async def test_no_vectors_are_made_that_no_frame_could_hold(autojump_clock):
    line = embed("r", input=["x"] * 100)
    frame, is_kept = await refusal_of("infer.embed.sock", line, n_embd=65536)
    assert (frame["id"], frame["code"]) == ("r", "invalid_request")
    assert frame["message"].startswith("invalid request: input has 100 entries")
    assert is_kept


async def test_names_that_nobody_knows_are_repeated_in_part(autojump_clock):
    names: dict[str, Any] = {f"{number}{'x' * 1000}": 1 for number in range(20)}
    frame, is_kept = await refusal_of(
        "infer.embed.sock", embed("r", input=["x"], strict=True, **names)
    )
    assert (frame["id"], frame["code"]) == ("r", "invalid_request")
    assert is_kept
    assert len(frame["message"]) <= MAX_ERROR_CHARS + 1
    assert "x" * (MAX_UNKNOWN_FIELD_CHARS + 1) not in frame["message"]
    for n_chars, code in ((128, "model_not_found"), (129, "invalid_request")):
        line = embed("r", input=["x"], model="x" * n_chars)
        frame, is_kept = await refusal_of("infer.embed.sock", line)
        assert (frame["code"], is_kept) == (code, True)
        assert len(frame["message"]) <= MAX_ERROR_CHARS + 1


def test_a_prompt_of_more_tokens_than_any_context_has_is_refused():
    tokens = [0] * (MAX_INPUT_TOKENS + 1)
    resolve_v2(BlocksRequest(input_tokens=tokens[1:]), seed=1)
    with pytest.raises(InvalidRequestError, match="1048577 entries, at most 1048576"):
        resolve_v2(BlocksRequest(input_tokens=tokens), seed=1)
