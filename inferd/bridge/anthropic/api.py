"""The record of Anthropic's API."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

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
from inferd.bridge.translation.failures import BridgeError, invalid
from inferd.bridge.translation.query import QueryForm, page_of, read_query


class MessageStream:
    """The form of streams: named events, with ``ping`` to keep them alive."""

    content_type = sse.CONTENT_TYPE
    keep_alive = sse.event(b'{"type":"ping"}', "ping")

    def failure_event(self, failure: BridgeError) -> bytes:
        """Return the event that ends a stream that fails."""
        return failure_event(failure)


class MessagesModelsQuery(Struct, frozen=True, kw_only=True):
    """The honoured parameters of the list of models."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    after_id: str = ""
    before_id: str = ""


def model_list(
    models: Sequence[OfferedModel], created_s: int, query: bytes = b""
) -> bytes:
    """Return a page of the list of models; raises as ``ModelList`` does."""
    wanted = read_query(query, tables.MODELS_QUERY, MessagesModelsQuery)
    if wanted.after_id and wanted.before_id:
        raise invalid("before_id", "not together with after_id")
    names = [model.name for model in models]
    try:
        page, has_more = page_of(
            names, wanted.limit, after=wanted.after_id, before=wanted.before_id
        )
    except ValueError as error:
        param = "before_id" if wanted.before_id else "after_id"
        raise invalid(param, "no model of that name is listed") from error
    fields = {
        "data": [_entry(models[at], created_s) for at in page],
        "has_more": has_more,
        "first_id": names[page[0]] if page else None,
        "last_id": names[page[-1]] if page else None,
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
    query=QueryForm(tables.QUERY),
    models_query=QueryForm(tables.MODELS_QUERY, MessagesModelsQuery),
    model_list=model_list,
    model_entry=model_entry,
)
