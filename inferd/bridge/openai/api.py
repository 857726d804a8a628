"""The record of OpenAI's API."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from inferd.bridge.openai import tables
from inferd.bridge.openai.chat_request import ChatRequest, ask_chat
from inferd.bridge.openai.completions import CompletionRequest, ask_completion
from inferd.bridge.openai.failures import OpenAiFailure, failure_body, failure_event
from inferd.bridge.openai.responses.request import ResponseRequest, ask_response
from inferd.bridge.openai.responses.tables import RESPONSES
from inferd.bridge.openai.speech.request import (
    TranscriptionForm,
    TranslationForm,
    ask_transcription,
    ask_translation,
)
from inferd.bridge.openai.speech.tables import TRANSCRIPTIONS, TRANSLATIONS
from inferd.bridge.openai.vectors import (
    EmbeddingsRequest,
    RankRequest,
    ask_embeddings,
    ask_rerank,
)
from inferd.bridge.recordings.transcript import TEXT_MEDIA_TYPES
from inferd.bridge.translation import sse
from inferd.bridge.translation.api import Api, FormOperation, OfferedModel, Operation
from inferd.bridge.translation.failures import BridgeError, invalid
from inferd.bridge.translation.query import QueryForm, page_of, read_query


class SseForm:
    """The form of streams: events, with comments to keep them alive."""

    content_type = sse.CONTENT_TYPE
    keep_alive = sse.KEEP_ALIVE

    def failure_event(self, failure: BridgeError) -> bytes:
        """Return the event that ends a stream that fails."""
        return failure_event(failure)


class OpenAiModelsQuery(Struct, frozen=True, kw_only=True):
    """The honoured parameters of the list of models."""

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 0
    """0 for all."""


def model_list(
    models: Sequence[OfferedModel], created_s: int, query: bytes = b""
) -> bytes:
    """Return the list of models; raises as ``ModelList`` does."""
    wanted = read_query(query, tables.MODELS_QUERY, OpenAiModelsQuery)
    names = [model.name for model in models]
    try:
        page, has_more = page_of(names, wanted.limit or len(names), after=wanted.after)
    except ValueError as error:
        raise invalid("after", "no model of that name is listed") from error
    data = [_entry(models[at], created_s) for at in page]
    fields = {"object": "list", "data": data, "has_more": has_more}
    return msgspec.json.encode(fields)


def model_entry(model: OfferedModel, created_s: int) -> bytes:
    """Return one model."""
    return msgspec.json.encode(_entry(model, created_s))


def _entry(model: OfferedModel, created_s: int) -> dict[str, object]:
    return {
        "id": model.name,
        "object": "model",
        "created": created_s,
        "owned_by": "inferd",
        "uses": model.uses,
    }


_STREAM: Final = SseForm()

OPENAI: Final = Api(
    name="openai",
    prefixes=("/v1/", "/"),
    operations=(
        Operation(
            *("/v1/chat/completions", ask_chat, tables.CHAT, _STREAM),
            body=ChatRequest,
            also=("/chat/completions",),
        ),
        Operation(
            *("/v1/responses", ask_response, RESPONSES, _STREAM),
            body=ResponseRequest,
            also=("/responses",),
        ),
        Operation(
            *("/v1/completions", ask_completion, tables.COMPLETIONS, _STREAM),
            body=CompletionRequest,
            also=("/completions",),
        ),
        Operation(
            *("/v1/embeddings", ask_embeddings, tables.EMBEDDINGS),
            body=EmbeddingsRequest,
            also=("/embeddings",),
        ),
        Operation(
            *("/v1/rerank", ask_rerank, tables.RERANK),
            body=RankRequest,
            answer=dict[str, object] | list[object],
            also=("/v2/rerank", "/rerank", "/v1/reranking", "/reranking"),
        ),
        FormOperation(
            *("/v1/audio/transcriptions", ask_transcription, TRANSCRIPTIONS, _STREAM),
            body=TranscriptionForm,
            also=("/audio/transcriptions",),
            texts=TEXT_MEDIA_TYPES,
        ),
        FormOperation(
            *("/v1/audio/translations", ask_translation, TRANSLATIONS),
            body=TranslationForm,
            also=("/audio/translations",),
            texts=TEXT_MEDIA_TYPES,
        ),
    ),
    error_body=failure_body,
    failure=OpenAiFailure,
    query=QueryForm(tables.QUERY),
    models_query=QueryForm(tables.MODELS_QUERY, OpenAiModelsQuery),
    models_path="/v1/models",
    models_also=("/models",),
    model_list=model_list,
    model_entry=model_entry,
)
