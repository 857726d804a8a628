from msgspec import Raw

from inferd.errors import ErrorCode
from inferd.wire.codec import encode
from inferd.wire.responses import (
    Alternative,
    AnswerWarning,
    BlockFrame,
    BlocksDone,
    DoneFrame,
    EmbeddingsFrame,
    EncodeUsage,
    ErrorFrame,
    Logprob,
    ProgressFrame,
    RankedDocument,
    RerankFrame,
    Response,
    TextDelta,
    ThinkingDelta,
    Timing,
    TokenFrame,
    ToolCall,
    Usage,
    UsageV2,
)
from tests.cases import each_case

TIMING = Timing(
    queued_ms=0.5,
    prefill_ms=2.0,
    first_token_ms=2.5,
    decode_ms=7.5,
    total_ms=10.0,
    tokens_per_second=100.0,
    arrived_ns=1_790_000_000_000_000_001,
    started_ns=1_790_000_000_000_500_001,
    finished_ns=1_790_000_000_010_000_001,
)
TIMING_JSON = (
    '"timing":{"queued_ms":0.5,"prefill_ms":2.0,"first_token_ms":2.5,"decode_ms":7.5,'
    '"total_ms":10.0,"tokens_per_second":100.0,"arrived_ns":1790000000000000001,'
    '"started_ns":1790000000000500001,"finished_ns":1790000000010000001}'
)

V1: dict[str, Response] = {
    '{"type":"token","id":"abc123","content":"Hel"}': TokenFrame(
        id="abc123", content="Hel"
    ),
    (
        '{"type":"done","id":"abc123","content":"Hello",'
        '"usage":{"prompt_tokens":12,"completion_tokens":7,"cached_tokens":0},'
        '"stop_reason":"end","backend":"llamacpp"}'
    ): DoneFrame(
        id="abc123",
        content="Hello",
        usage=Usage(prompt_tokens=12, completion_tokens=7),
        stop_reason="end",
        backend="llamacpp",
    ),
    (
        '{"type":"done","id":"1","content":"","usage":{"prompt_tokens":3,'
        '"completion_tokens":2,"cached_tokens":1},"stop_reason":"cancelled",'
        '"backend":"chat","seed":42,' + TIMING_JSON + "}"
    ): DoneFrame(
        id="1",
        content="",
        usage=Usage(3, 2, 1),
        stop_reason="cancelled",
        backend="chat",
        seed=42,
        timing=TIMING,
    ),
}
TOKEN = Logprob(
    token="Hel",  # noqa: S106  # a piece of text
    id=7,
    bytes=[72, 101, 108],
    logprob=-0.1,
    top_logprobs=[
        Alternative(token="\ufffd", id=9, bytes=[255], logprob=-2.0),  # noqa: S106
    ],
)
V2: dict[str, Response] = {
    (
        '{"type":"frame","id":"r","block":{"type":"text","delta":"Hel"},"logprobs":['
        '{"token":"Hel","id":7,"bytes":[72,101,108],"logprob":-0.1,"top_logprobs":['
        '{"token":"\ufffd","id":9,"bytes":[255],"logprob":-2.0}]}]}'
    ): BlockFrame(id="r", block=TextDelta("Hel"), logprobs=[TOKEN]),
    '{"type":"frame","id":"r","block":{"type":"text","delta":"Hel"}}': BlockFrame(
        id="r", block=TextDelta("Hel")
    ),
    '{"type":"frame","id":"r","block":{"type":"thinking","delta":"\\n"}}': BlockFrame(
        id="r", block=ThinkingDelta("\n")
    ),
    (
        '{"type":"frame","id":"r","block":{"type":"tool_use","tool_call_id":"tc-0",'
        '"name":"f","input":{"city":"London","n":[1,2.5,null]}}}'
    ): BlockFrame(
        id="r", block=ToolCall("tc-0", "f", {"city": "London", "n": [1, 2.5, None]})
    ),
    (
        '{"type":"done","id":"r","usage":{"input_tokens":4,"output_tokens":2,'
        '"cached_tokens":0},"stop_reason":"end_turn","backend":"chat"}'
    ): BlocksDone(id="r", usage=UsageV2(4, 2), stop_reason="end_turn", backend="chat"),
    (
        '{"type":"done","id":"r","usage":{"input_tokens":4,"output_tokens":2,'
        '"cached_tokens":3},"stop_reason":"stop_sequence","backend":"chat","seed":0,'
        + TIMING_JSON
        + ',"stop_sequence":"END","stop_token_id":0,"detail":"deadline",'
        '"warnings":[{"code":"tool_call_malformed","raw":"{"}]}'
    ): BlocksDone(
        id="r",
        usage=UsageV2(4, 2, 3),
        stop_reason="stop_sequence",
        backend="chat",
        seed=0,
        timing=TIMING,
        stop_sequence="END",
        stop_token_id=0,
        detail="deadline",
        warnings=[AnswerWarning(code="tool_call_malformed", raw="{")],
    ),
}
ENCODED: dict[str, Response] = {
    (
        '{"type":"embeddings","id":"r","embeddings":[[0.5,-1],[1e-3,2]],"dimensions":2,'
        '"model":"m","usage":{"input_tokens":12},"backend":"embed"}'
    ): EmbeddingsFrame(
        id="r",
        embeddings=Raw(b"[[0.5,-1],[1e-3,2]]"),
        dimensions=2,
        model="m",
        usage=EncodeUsage(12),
        backend="embed",
    ),
    (
        '{"type":"rerank","id":"r","results":[{"index":1,"score":3.2},'
        '{"index":0,"score":-0.5}],"model":"","usage":{"input_tokens":20},'
        '"backend":"rerank"}'
    ): RerankFrame(
        id="r",
        results=[RankedDocument(1, 3.2), RankedDocument(0, -0.5)],
        model="",
        usage=EncodeUsage(20),
        backend="rerank",
    ),
}
ANY: dict[str, Response] = {
    '{"type":"status","id":"r","status":"queued","position":2}': ProgressFrame(
        id="r", status="queued", position=2
    ),
    '{"type":"status","id":"r","status":"prefill","processed":0,"total":2048}': (
        ProgressFrame(id="r", status="prefill", processed=0, total=2048)
    ),
    '{"type":"error","id":"a","code":"queue_full","message":"queue full"}': ErrorFrame(
        id="a", code=ErrorCode.QUEUE_FULL, message="queue full"
    ),
    (
        '{"type":"error","id":"","code":"invalid_request","message":"too long",'
        '"prompt_tokens":9,"n_ctx":8,"tokens_over":2}'
    ): ErrorFrame(
        id="",
        code=ErrorCode.INVALID_REQUEST,
        message="too long",
        prompt_tokens=9,
        n_ctx=8,
        tokens_over=2,
    ),
    (
        '{"type":"error","id":"a","code":"invalid_request","message":"too long",'
        '"prompt_tokens":20,"n_ctx":8,"tokens_over":13,"at_least":true}'
    ): ErrorFrame(
        id="a",
        code=ErrorCode.INVALID_REQUEST,
        message="too long",
        prompt_tokens=20,
        n_ctx=8,
        tokens_over=13,
        at_least=True,
    ),
}


@each_case("line", [*V1, *V2, *ENCODED, *ANY])
def test_an_answer_is_these_bytes(line):
    frame = {**V1, **V2, **ENCODED, **ANY}[line]
    assert encode(frame) == line.encode() + b"\n"


def test_nothing_is_left_out_of_a_frame_because_it_is_empty():
    assert encode(TokenFrame(id="", content="")) == (
        b'{"type":"token","id":"","content":""}\n'
    )
    done = DoneFrame(
        id="", content="", usage=Usage(0, 0), stop_reason="length", backend=""
    )
    assert encode(done) == (
        b'{"type":"done","id":"","content":"",'
        b'"usage":{"prompt_tokens":0,"completion_tokens":0,"cached_tokens":0},'
        b'"stop_reason":"length","backend":""}\n'
    )


def test_a_moment_is_larger_than_a_double_holds():
    assert TIMING.arrived_ns > 2**53
    assert float(TIMING.arrived_ns) != TIMING.arrived_ns
