"""Frames of a daemon for the bridge's translations, and what an API makes of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import Asked, Question
from inferd.client.frames import ClientBlocksDone
from inferd.wire.blocks import BlocksRequest
from inferd.wire.responses import (
    BlockFrame,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    UsageV2,
)

ASKED = Asked(request_id="req_1", created_s=7, default_max_tokens=99)
BLOCK = st.one_of(
    st.builds(TextDelta, st.text(min_size=1)),
    st.builds(ThinkingDelta, st.text(min_size=1)),
    st.builds(
        ToolCall,
        st.just("tc"),
        st.text(min_size=1),
        st.dictionaries(st.text(), st.integers() | st.text()),
    ),
)
"""Any part of an answer."""


def generated(question: Question) -> BlocksRequest:
    """Give the request of a question that has one for a generated answer."""
    assert isinstance(question.request, BlocksRequest)
    return question.request


def refused(ask: Callable[[], object]) -> tuple[Reason, str | None]:
    """Give why a translation is refused, and the field at fault."""
    with pytest.raises(BridgeError) as caught:
        ask()
    return caught.value.reason, caught.value.param


def frame(block: Any, **fields: Any) -> BlockFrame:
    """Make a part of an answer."""
    return BlockFrame(id="req_1", block=block, **fields)


def done(reason: str = "end_turn", **fields: Any) -> ClientBlocksDone:
    """Make the end of an answer."""
    usage = UsageV2(11, 5, 3)
    return ClientBlocksDone(
        id="req_1", usage=usage, stop_reason=reason, backend="chat", **fields
    )


def streamed(question: Question, *frames: Any) -> bytes:
    """Give the bytes of a streamed answer."""
    parts = [part for each in frames for part in question.answer.add(each)]
    return b"".join([*parts, *question.answer.end()])


def whole(question: Question, *frames: Any) -> Any:
    """Give an answer that is not streamed."""
    for each in frames:
        assert isinstance(list(question.answer.add(each)), list)
    return json.loads(question.answer.whole())
