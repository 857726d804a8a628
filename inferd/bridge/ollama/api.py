"""The record of Ollama's API."""

from typing import Final

from inferd.bridge.ollama import tables
from inferd.bridge.ollama.chat import OllamaChat, ask_chat
from inferd.bridge.ollama.failures import OllamaFailure, failure_body, failure_line
from inferd.bridge.ollama.generate import OllamaPrompt, ask_generate
from inferd.bridge.ollama.models import (
    ShowRequest,
    list_models,
    list_running,
    refuse_to_manage,
    show_model,
    tell_version,
)
from inferd.bridge.ollama.store import (
    DeletedModel,
    PulledModel,
    PullStatus,
    ask_delete_model,
    ask_pull_model,
)
from inferd.bridge.ollama.vectors import (
    EmbeddingRequest,
    TextsRequest,
    ask_embed,
    ask_embedding,
)
from inferd.bridge.translation.api import Api, Lookup, Operation
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.managed import ManagedOperation
from inferd.bridge.translation.query import NO_QUERY


class LineStream:
    """The form of streams: an object on each line, and spaces to keep them alive.

    Clients read each line as JSON, which may begin with spaces; an empty line is an error.
    """

    content_type = "application/x-ndjson"
    keep_alive = b" "

    def failure_event(self, failure: BridgeError) -> bytes:
        """Return the line that ends a stream that fails."""
        return failure_line(failure)


_STREAM: Final = LineStream()
_MANAGING: Final = (
    ("POST", "/api/push"),
    ("POST", "/api/create"),
    ("POST", "/api/copy"),
    ("GET", "/api/blobs/{digest}"),
    ("POST", "/api/blobs/{digest}"),
)
"""Routes that change which models there are."""

OLLAMA: Final = Api(
    name="ollama",
    prefixes=("/api/",),
    operations=(
        Operation("/api/chat", ask_chat, tables.CHAT, _STREAM, body=OllamaChat),
        Operation(
            "/api/generate", ask_generate, tables.GENERATE, _STREAM, body=OllamaPrompt
        ),
        Operation("/api/embed", ask_embed, tables.EMBED, body=TextsRequest),
        Operation(
            "/api/embeddings", ask_embedding, tables.EMBEDDINGS, body=EmbeddingRequest
        ),
    ),
    parts=(tables.OPTIONS,),
    lookups=(
        Lookup(
            "POST",
            "/api/show",
            show_model,
            "Describe a model",
            body=ShowRequest,
            reasons=(Reason.UNKNOWN_FIELD, Reason.MODEL_NOT_FOUND),
            note="`capabilities`, the family as `details.family`, and in `model_info` the "
            "length of the context. Of a model of the store that nobody has used yet, no "
            "`capabilities` are known.",
            table=tables.SHOW,
        ),
        Lookup(
            "GET",
            "/api/tags",
            list_models,
            "List the models",
            note="All names, aliases among them. The daemon tells no sizes and digests: "
            "they are 0.",
        ),
        Lookup(
            "GET",
            "/api/ps",
            list_running,
            "List the models that are loaded",
            note="The models that are loaded. When one is unloaded is not told: "
            "`expires_at` is far off.",
        ),
        Lookup(
            "GET",
            "/api/version",
            tell_version,
            "Tell the version of the API",
            note="The release of Ollama whose fields are known here.",
            asks_models=False,
        ),
        *(
            Lookup(
                method,
                path,
                refuse_to_manage,
                "Refuse to change which models there are",
                note="Refused with 403: models are pulled and removed over HTTP, and no more.",
                asks_models=False,
                is_refused=True,
            )
            for method, path in _MANAGING
        ),
    ),
    managed=(
        ManagedOperation(
            path="/api/pull",
            method="POST",
            scope="models",
            summary="Pull a model into the store",
            ask=ask_pull_model,
            table=tables.PULL,
            stream=_STREAM,
            body=PulledModel,
            answer=PullStatus,
        ),
        ManagedOperation(
            path="/api/delete",
            method="DELETE",
            scope="models",
            summary="Remove a model from the store",
            ask=ask_delete_model,
            table=tables.DELETE,
            body=DeletedModel,
        ),
    ),
    query=NO_QUERY,
    error_body=failure_body,
    failure=OllamaFailure,
)
