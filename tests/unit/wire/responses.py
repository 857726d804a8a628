"""Any answer of each kind, to draw from."""

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from inferd.errors import ErrorCode
from inferd.wire import commands, responses
from tests.unit.strategies import ANY_JSON, FINITE, RAWS, U32

TEXTS = st.text(max_size=6)
MOMENTS = st.integers(0, 2**63 - 1)
UNSETS = st.just(UNSET)
GUESSED = UNSETS | U32

TIMING = st.builds(
    responses.Timing,
    queued_ms=FINITE,
    prefill_ms=FINITE,
    first_token_ms=FINITE,
    decode_ms=FINITE,
    total_ms=FINITE,
    tokens_per_second=FINITE,
    arrived_ns=MOMENTS,
    started_ns=MOMENTS,
    finished_ns=MOMENTS,
)
ERRORS = st.builds(
    responses.ErrorFrame,
    id=TEXTS,
    code=st.sampled_from(ErrorCode),
    message=TEXTS,
    prompt_tokens=UNSETS | U32,
    n_ctx=UNSETS | U32,
    tokens_over=UNSETS | U32,
    at_least=UNSETS | st.booleans(),
)
PROGRESS = st.builds(
    responses.ProgressFrame,
    id=TEXTS,
    status=st.sampled_from(["queued", "prefill"]),
    position=UNSETS | U32,
    processed=UNSETS | U32,
    total=UNSETS | U32,
)
TEXT = st.one_of(
    st.builds(responses.TokenFrame, id=TEXTS, content=TEXTS),
    st.builds(
        responses.DoneFrame,
        id=TEXTS,
        content=TEXTS,
        usage=st.builds(responses.Usage, U32, U32, U32, GUESSED, GUESSED),
        stop_reason=st.sampled_from(["end", "length", "cancelled", "error"]),
        backend=TEXTS,
        seed=UNSETS | U32,
        timing=UNSETS | TIMING,
    ),
    PROGRESS,
    ERRORS,
)

TOKEN = {
    "token": TEXTS,
    "id": U32,
    "bytes": st.lists(st.integers(0, 255), max_size=3),
    "logprob": st.floats(max_value=0, allow_infinity=False),
}
LOGPROB = st.builds(
    responses.Logprob,
    **TOKEN,
    top_logprobs=st.lists(st.builds(responses.Alternative, **TOKEN), max_size=2),
)
BLOCKS = st.one_of(
    st.builds(
        responses.BlockFrame,
        id=TEXTS,
        block=st.one_of(
            st.builds(responses.TextDelta, TEXTS),
            st.builds(responses.ThinkingDelta, TEXTS),
            st.builds(responses.ToolCall, TEXTS, TEXTS, ANY_JSON),
        ),
        logprobs=UNSETS | st.lists(LOGPROB, max_size=2),
    ),
    st.builds(
        responses.BlocksDone,
        id=TEXTS,
        usage=st.builds(responses.UsageV2, U32, U32, U32, GUESSED, GUESSED),
        stop_reason=st.sampled_from(
            [
                "end_turn",
                "max_tokens",
                "tool_use",
                "stop_sequence",
                "cancelled",
                "error",
            ]
        ),
        backend=TEXTS,
        seed=UNSETS | U32,
        timing=UNSETS | TIMING,
        stop_sequence=UNSETS | TEXTS,
        stop_token_id=UNSETS | U32,
        detail=UNSETS | st.just("deadline"),
        warnings=UNSETS
        | st.lists(
            st.builds(
                responses.AnswerWarning, code=st.just("tool_call_malformed"), raw=TEXTS
            ),
            max_size=1,
        ),
    ),
    PROGRESS,
    ERRORS,
)

ENCODE_USAGE = st.builds(responses.EncodeUsage, U32)
EMBED = ERRORS | st.builds(
    responses.EmbeddingsFrame,
    id=TEXTS,
    embeddings=st.lists(st.lists(FINITE, max_size=2), max_size=2).map(
        lambda vectors: Raw(msgspec.json.encode(vectors))
    ),
    dimensions=U32,
    model=TEXTS,
    usage=ENCODE_USAGE,
    backend=TEXTS,
)
RERANK = ERRORS | st.builds(
    responses.RerankFrame,
    id=TEXTS,
    results=st.lists(st.builds(responses.RankedDocument, U32, FINITE), max_size=2),
    model=TEXTS,
    usage=ENCODE_USAGE,
    backend=TEXTS,
)

REPLIES = st.builds(
    commands.Reply,
    command=TEXTS,
    ok=st.booleans(),
    error=UNSETS | TEXTS,
    requests=UNSETS
    | st.lists(
        st.builds(
            commands.RequestInfo,
            id=TEXTS,
            socket=TEXTS,
            uid=st.integers(-1, 2**32 - 1),
            pid=U32,
            phase=st.sampled_from(["queued", "running"]),
            age_ms=FINITE,
            backend=UNSETS | TEXTS,
            position=UNSETS | U32,
            output_tokens=U32,
        ),
        max_size=1,
    ),
    backends=UNSETS
    | st.lists(
        st.builds(
            commands.BackendInfo,
            name=TEXTS,
            ready=st.booleans(),
            unavailable=UNSETS | TEXTS,
            capabilities=RAWS,
        ),
        max_size=1,
    ),
    text=UNSETS | TEXTS,
    cancelled=UNSETS | U32,
)
