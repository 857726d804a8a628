import gc
import json
import weakref
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from inferd.backend.job import GenerateJob, Turn
from inferd.errors import (
    FrameTooLargeError,
    InternalError,
    InvalidFrameError,
    InvalidRequestError,
)
from inferd.limits.server import OFFLOAD_LINE_BYTES
from inferd.line_decoder.decode import decode_large_line
from inferd.line_decoder.kinds import KINDS
from inferd.line_decoder.messages import DecodeTask
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.v1 import resolve_v1
from inferd.routing import GENERATES
from inferd.server.identity.peer import Peer
from inferd.server.large_lines.decode import ParsedLine, decode_line, resolved_or
from inferd.server.large_lines.decoder_pool import DecoderOutput, DecoderPool
from inferd.server.large_lines.lines import LargeLine
from inferd.wire.requests import CancelLine, GenerateRequest

REQUEST = {"id": "r", "messages": [{"role": "user", "content": "hello"}]}


class LocalDecoder(DecoderPool):
    """Decodes lines in this process."""

    async def read(self, task: DecodeTask, parts: Any, *, user: int) -> DecoderOutput:
        """Decode a line at once."""
        answer, sections = decode_large_line(task, b"".join(parts))
        return DecoderOutput(answer, [bytearray(each) for each in sections])


async def found(message: Any, kind: str | None = "text", n_fds: int = 0) -> Any:
    text = message if isinstance(message, bytes) else json.dumps(message).encode()
    data = bytearray(text)
    line = LargeLine([data], len(data))
    return await decode_line(
        LocalDecoder(),
        line,
        kind=KINDS[kind] if kind else None,
        peer=Peer(1, 7, 7),
        n_fds=n_fds,
    )


async def test_a_request_comes_resolved_and_its_content_is_not_copied():
    it = await found(REQUEST)
    assert isinstance(it, ParsedLine)
    assert isinstance(it.resolved, ResolvedRequest)
    assert it.resolved.needs == (GENERATES,)
    job = it.resolved.job
    assert isinstance(job, GenerateJob)
    assert isinstance(job.content, Raw)
    assert msgspec.msgpack.decode(job.content, type=list[Turn]) == [
        Turn("user", "hello")
    ]
    assert resolved_or(it.resolved, lambda: pytest.fail("asked")) is it.resolved


class Part(bytearray):
    """One that supports weak references."""


async def test_a_refused_line_is_freed_as_its_refusal_is():
    part = Part(b'{"id": 7, "messages": []}')
    line, freed = LargeLine([part], len(part)), weakref.ref(part)
    gc.disable()
    try:
        it = await decode_line(
            LocalDecoder(),
            line,
            kind=KINDS["text"],
            peer=Peer(1, 7, 7),
            n_fds=0,
        )
        assert isinstance(it, InvalidFrameError)
        del it, line, part
        assert freed() is None
    finally:
        gc.enable()


async def test_texts_are_put_back_into_attachments():
    sound = {"kind": "audio", "id": "a", "sample_rate": 16000, "bytes": "AAAAAA=="}
    content = [{"type": "audio", "attachment_id": "a"}]
    message = {
        "messages": [{"role": "user", "content": content}],
        "attachments": [sound],
    }
    it = await found(message, "blocks")
    assert bytes(it.request.attachments[0].bytes) == b"AAAAAA=="


async def test_cancels_and_appends_are_decoded():
    assert (await found({"type": "cancel", "id": "r"})).cancel == CancelLine(id="r")
    line = {"type": "append", "id": "r", "attachment_id": "a", "bytes": "AAAA"}
    it = await found(line, "blocks")
    assert bytes(it.append.bytes) == b"AAAA"
    empty = {**line, "bytes": ""}
    assert (await found(empty, "blocks")).append.bytes == ""


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("text", {"id": "r", "messages": []}),
        ("embed", {"id": "r", "input": []}),
        ("rerank", {"id": "r", "query": "", "documents": []}),
    ],
)
async def test_a_refusal_keeps_its_request(kind, message):
    it = await found(message, kind)
    assert it.request.id == "r"
    assert isinstance(it.resolved, InvalidRequestError)
    with pytest.raises(InvalidRequestError):
        resolved_or(it.resolved, lambda: pytest.fail("asked"))


async def test_a_large_line_for_which_there_is_no_decoder_is_refused():
    error = await found({"id": "r"}, kind=None)
    assert isinstance(error, FrameTooLargeError)
    assert error.closes_connection
    assert "11 bytes" in error.message
    assert f"fewer than {OFFLOAD_LINE_BYTES}" in error.message


async def test_an_invalid_line_is_returned_as_an_error():
    assert isinstance(await found(b"no JSON"), InvalidFrameError)


def test_an_unresolved_request_is_resolved():
    plan = resolve_v1(msgspec.convert(REQUEST, GenerateRequest), seed=1)
    assert resolved_or(None, lambda: plan) is plan
    with pytest.raises(InternalError):
        resolved_or(InternalError("bug"), lambda: plan)
