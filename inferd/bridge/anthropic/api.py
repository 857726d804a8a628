"""The record of Anthropic's API."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from inferd.bridge.anthropic import tables
from inferd.bridge.anthropic.count import TokenCount
from inferd.bridge.anthropic.failures import (
    AnthropicFailure,
    failure_body,
    failure_event,
)
from inferd.bridge.anthropic.request import (
    MessageRequest,
    PromptRequest,
    ask_count,
    ask_message,
)
from inferd.bridge.translation import sse
from inferd.bridge.translation.api import Api, OfferedModel, Operation
from inferd.bridge.translation.failures import BridgeError


class MessageStream:
    """The form of streams: named events, with ``ping`` to keep them alive."""

    content_type = sse.CONTENT_TYPE
    keep_alive = sse.event(b'{"type":"ping"}', "ping")

    def failure_event(self, failure: BridgeError) -> bytes:
        """Return the event that ends a stream that fails."""
        return failure_event(failure)


def model_list(models: Sequence[OfferedModel], created_s: int) -> bytes:
    """Return the list of models, which is always whole."""
    fields = {
        "data": [_entry(model, created_s) for model in models],
        "has_more": False,
        "first_id": models[0].name if models else None,
        "last_id": models[-1].name if models else None,
    }
    return msgspec.json.encode(fields)


def model_entry(model: OfferedModel, created_s: int) -> bytes:
    """Return one model."""
    return msgspec.json.encode(_entry(model, created_s))


def _entry(model: OfferedModel, created_s: int) -> dict[str, object]:
    created = datetime.fromtimestamp(created_s, UTC)
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": created.isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "capabilities": None,
        "max_input_tokens": None,
        "max_tokens": None,
    }


ANTHROPIC: Final = Api(
    name="anthropic",
    prefixes=("/v1/messages",),
    own_header="anthropic-version",
    operations=(
        Operation(
            "/v1/messages",
            ask_message,
            tables.MESSAGES,
            MessageStream(),
            body=MessageRequest,
        ),
        Operation(
            "/v1/messages/count_tokens",
            ask_count,
            tables.COUNT_TOKENS,
            body=PromptRequest,
            answer=TokenCount,
        ),
    ),
    error_body=failure_body,
    failure=AnthropicFailure,
    model_list=model_list,
    model_entry=model_entry,
)
