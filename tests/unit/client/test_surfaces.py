import json

import msgspec
import pytest
from msgspec import Raw

from inferd.client.frames import ClientBlocksDone, ClientDoneFrame, ClientErrorFrame
from inferd.client.surfaces import BLOCKS, EMBED, RERANK, TEXT
from inferd.errors import ErrorCode, InvalidFrameError
from inferd.wire.codec import encode
from inferd.wire.responses import (
    BlockFrame,
    BlocksDone,
    DoneFrame,
    EmbeddingsFrame,
    EncodeUsage,
    ErrorFrame,
    ProgressFrame,
    RankedDocument,
    RerankFrame,
    TextDelta,
    ThinkingDelta,
    TokenFrame,
    ToolCall,
    Usage,
    UsageV2,
)
from tests.cases import each_case

SURFACES = [TEXT, BLOCKS, EMBED, RERANK]
ANSWERS = [
    (TEXT, TokenFrame(id="r", content="a")),
    (TEXT, ProgressFrame(id="r", status="prefill", processed=1, total=2)),
    (BLOCKS, ProgressFrame(id="r", status="queued", position=1)),
    *[
        (BLOCKS, BlockFrame(id="r", block=block))
        for block in (TextDelta("a"), ThinkingDelta("a"), ToolCall("t", "f", {"a": 1}))
    ],
    (
        EMBED,
        EmbeddingsFrame(
            id="r",
            embeddings=Raw(b"[[1.5]]"),
            dimensions=1,
            model="m",
            usage=EncodeUsage(1),
            backend="b",
        ),
    ),
    (
        RERANK,
        RerankFrame(
            id="r",
            results=[RankedDocument(0, 0.5)],
            model="m",
            usage=EncodeUsage(1),
            backend="b",
        ),
    ),
]


def line(frame):
    return json.dumps(frame).encode()


def test_each_surface_has_its_socket():
    assert (TEXT.socket, BLOCKS.socket) == ("infer.sock", "infer.v2.sock")
    assert (EMBED.socket, RERANK.socket) == ("infer.embed.sock", "infer.rerank.sock")


@each_case(("surface", "answer"), ANSWERS)
def test_what_a_daemon_answers_is_read(surface, answer):
    assert surface.read(encode(answer)[:-1]) == answer


@each_case(
    ("surface", "frame", "kind"),
    [
        (
            TEXT,
            DoneFrame(
                id="r", content="a", usage=Usage(1, 2), stop_reason="end", backend="b"
            ),
            ClientDoneFrame,
        ),
        (
            BLOCKS,
            BlocksDone(
                id="r", usage=UsageV2(1, 2), stop_reason="tool_use", backend="b"
            ),
            ClientBlocksDone,
        ),
        *[
            (
                each,
                ErrorFrame(id="", code=ErrorCode.INTERNAL, message="m"),
                ClientErrorFrame,
            )
            for each in SURFACES
        ],
    ],
)
def test_the_end_of_an_answer_is_read_as_from_any_daemon(surface, frame, kind):
    read = surface.read(encode(frame)[:-1])
    assert type(read) is kind
    assert msgspec.to_builtins(read) == msgspec.to_builtins(frame)


@each_case("surface", SURFACES)
def test_unknown_fields_are_ignored(surface):
    failure = {"type": "error", "id": "r", "code": "internal", "message": "m"}
    assert surface.read(line(failure | {"news": [1]})) == surface.read(line(failure))


@each_case(
    ("surface", "frame"),
    [
        *[(surface, {"type": "news\nfrom `$.type`"}) for surface in SURFACES],
        (TEXT, {"type": "status", "id": "r", "status": "news"}),
        (BLOCKS, {"type": "status", "id": "r", "status": "news"}),
        (BLOCKS, {"type": "frame", "id": "r", "block": {"type": "news"}}),
    ],
)
def test_a_frame_of_an_unknown_kind_is_ignored(surface, frame):
    assert surface.read(line(frame)) is None


@each_case("surface", SURFACES)
@each_case(
    "frame",
    [
        *(b"", b"null", b"[]", b"{}", b'{"type":1}', b'{"type":"error"}', b"\xff"),
        b'{"type":"error","id":"r","code":1,"message":"m"}',
        b'{"type":"error","id":"\xff","code":"internal","message":"m"}',
        b'{"type":"error","news":' + b"[" * 100_000,
    ],
    ids=range(10),
)
def test_what_is_no_frame_is_refused(surface, frame):
    with pytest.raises(InvalidFrameError):
        surface.read(frame)
