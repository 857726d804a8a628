"""What several property tests draw from."""

from itertools import pairwise

from hypothesis import strategies as st

from inferd.limits import U32_MAX
from inferd.wire.requests import ChatMessage, GenerateRequest

U32 = st.integers(0, U32_MAX)
FINITE = st.floats(allow_nan=False, allow_infinity=False)

MESSAGES = st.lists(
    st.builds(ChatMessage, st.sampled_from(["system", "user", "assistant"]), st.text()),
    max_size=4,
)

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
)


def chunked(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """Cut bytes into pieces, in order; some may be empty."""

    def cut(places: list[int]) -> list[bytes]:
        edges = [0, *sorted(places), len(data)]
        return [data[start:end] for start, end in pairwise(edges)]

    return st.lists(st.integers(0, len(data)), max_size=12).map(cut)
