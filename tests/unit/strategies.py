"""What several property tests draw from."""

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import Raw

from inferd.limits.protocol import U32_MAX
from inferd.wire import blocks
from inferd.wire.requests import (
    ChatMessage,
    EmbedRequest,
    GenerateRequest,
    RerankRequest,
)

U32 = st.integers(0, U32_MAX)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
ROLES = st.sampled_from(["system", "user", "assistant"])

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(max_size=4),
    lambda values: (
        st.lists(values, max_size=2)
        | st.dictionaries(st.text(max_size=4), values, max_size=2)
    ),
    max_leaves=4,
)
RAWS = ANY_JSON.map(msgspec.json.encode).map(Raw)

MESSAGES = st.lists(st.builds(ChatMessage, ROLES, st.text()), max_size=4)
STOPS = st.none() | st.lists(st.text(), max_size=3)

REQUESTS = st.builds(
    GenerateRequest,
    id=st.text(),
    messages=MESSAGES,
    temperature=st.none() | FINITE,
    top_p=st.none() | FINITE,
    top_k=st.none() | U32,
    max_tokens=st.none() | U32,
    stream=st.none() | st.booleans(),
    image_token_budget=st.none() | U32,
    grammar=st.text(),
    stop=STOPS,
    seed=st.none() | U32,
    progress=st.none() | st.booleans(),
    model=st.none() | st.text(),
    strict=st.none() | st.booleans(),
)

# --- v2 -------------------------------------------------------------------------------

LEAF_BLOCKS = st.one_of(
    st.builds(blocks.TextBlock, st.text()),
    st.builds(blocks.ImageBlock, st.text()),
    st.builds(blocks.AudioBlock, st.text()),
    st.builds(blocks.VideoBlock, st.text()),
    st.builds(blocks.ToolUseBlock, st.text(), st.text(), RAWS),
    st.just(blocks.UnknownBlock()),
)
BLOCKS = st.recursive(
    LEAF_BLOCKS,
    lambda nested: st.builds(
        blocks.ToolResultBlock, st.text(), st.lists(nested, max_size=2)
    ),
    max_leaves=3,
)
ATTACHMENTS = st.one_of(
    st.builds(blocks.ImageAttachment, st.text(), U32, U32, st.text()),
    st.builds(blocks.AudioAttachment, st.text(), U32, st.text(), open=st.booleans()),
    st.builds(blocks.VideoAttachment, st.text(), st.text()),
    st.just(blocks.UnknownAttachment()),
)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(
        [
            *("temperature", "top_p", "min_p", "repeat_penalty"),
            *("presence_penalty", "frequency_penalty", "keep_alive_s"),
        ],
        FINITE,
    ),
    **dict.fromkeys(
        ["top_k", "seed", "max_tokens", "min_tokens", "logprobs", "deadline_ms"], U32
    ),
    **dict.fromkeys(
        ["thinking", "stream", "prefill_only", "progress", "strict"], st.booleans()
    ),
    "logit_bias": st.dictionaries(st.text(max_size=3), FINITE, max_size=2),
    "stop": STOPS,
    "stop_token_ids": st.lists(U32, max_size=2),
    "response_format": st.builds(
        blocks.ResponseFormat, type=st.text(), schema=RAWS, pattern=st.text()
    ),
    "tool_choice": st.text() | st.builds(blocks.NamedTool, st.text()),
    "language": st.sampled_from(["auto", "de"]) | st.text(),
    "translate": st.booleans(),
    "timestamps": st.sampled_from(["segment", "word"]) | st.text(),
    "priority": st.integers(),
    "cache": st.text(),
    "model": st.text(),
}
"""Values of all the optional fields of a v2 request."""


def _blocks_request(fields: dict[str, Any]) -> blocks.BlocksRequest:
    return blocks.BlocksRequest(**fields)


BLOCKS_REQUESTS = st.fixed_dictionaries(
    {
        "messages": st.lists(
            st.builds(blocks.Message, ROLES, st.lists(BLOCKS, max_size=3)), max_size=2
        )
    },
    optional={
        "id": st.text(),
        "attachments": st.lists(ATTACHMENTS, max_size=2),
        "tools": st.lists(
            st.builds(blocks.Tool, st.text(), st.text(), RAWS), max_size=2
        ),
        **OPTIONS,
    },
).map(_blocks_request)

# --- embeddings and scores ------------------------------------------------------------

EMBED_REQUESTS = st.builds(
    EmbedRequest,
    id=st.text(),
    input=st.lists(st.text(), max_size=3),
    tokens=st.none() | st.lists(st.lists(U32, max_size=3), max_size=3),
    dimensions=st.none() | U32,
    task=st.none() | st.text(),
    model=st.none() | st.text(),
    strict=st.none() | st.booleans(),
)
RERANK_REQUESTS = st.builds(
    RerankRequest,
    id=st.text(),
    query=st.text(),
    documents=st.lists(st.text(), max_size=3),
    top_n=st.none() | U32,
    model=st.none() | st.text(),
    strict=st.none() | st.booleans(),
)


def chunked(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """Cut bytes into pieces, in order; some may be empty."""

    def cut(places: list[int]) -> list[bytes]:
        edges = [0, *sorted(places), len(data)]
        return [data[start:end] for start, end in pairwise(edges)]

    return st.lists(st.integers(0, len(data)), max_size=12).map(cut)
