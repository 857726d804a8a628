"""Small documents of ours, with what makes published ones hard to follow."""

from collections.abc import Mapping
from typing import Final

from proofs.published.documents import EVENTS, Schema

_JSON: Final = "application/json"
_PLACE: Final = "#/components/schemas/"
_TEXT: Final[Schema] = {"type": "string"}


def _operation(request: str, answers: Mapping[str, Schema]) -> Schema:
    content = {_JSON: {"schema": {"$ref": f"{_PLACE}{request}"}}}
    described = {media: {"schema": schema} for media, schema in answers.items()}
    return {
        "post": {
            "requestBody": {"required": True, "content": content},
            "responses": {"200": {"description": "The answer.", "content": described}},
        }
    }


def _document(paths: Schema, schemas: Schema) -> Schema:
    return {
        "openapi": "3.1.0",
        "info": {"title": "A sample", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _object(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": {**properties}}


_CHOICE: Final = _object(
    ["index"],
    index={"type": "integer"},
    finish_reason={"type": "string", "nullable": True},
)
_CHUNK: Final = _object(
    ["id", "choices", "object"],
    id=_TEXT,
    object={"enum": ["chat.completion.chunk"]},
    choices={"type": "array", "items": {"$ref": f"{_PLACE}Choice"}},
)
_WHOLE: Final = _object(
    ["id", "choices", "object", "usage"],
    id=_TEXT,
    object={"enum": ["chat.completion"]},
    choices={"type": "array", "items": {"$ref": f"{_PLACE}Choice"}},
    usage={"oneOf": [{"type": "object"}, {"required": ["total_tokens"]}]},
)
_MESSAGE: Final = _object(["role", "content"], role={"enum": ["user"]}, content=_TEXT)

SAMPLES: Final[Mapping[str, Schema]] = {
    "openai": _document(
        {
            "/chat/completions": _operation(
                "Asked",
                {
                    _JSON: {"$ref": f"{_PLACE}Whole"},
                    EVENTS: {"$ref": f"{_PLACE}Chunk"},
                },
            ),
            "/assistants": _operation("Elsewhere", {_JSON: {}}),
        },
        {
            "Asked": {
                "allOf": [
                    {"$ref": f"{_PLACE}Sampled"},
                    _object(
                        ["messages"],
                        messages={
                            "type": "array",
                            "items": {"$ref": f"{_PLACE}ChatCompletionRequestMessage"},
                        },
                        store={"type": "boolean", "nullable": True},
                        stream={"type": "boolean", "nullable": True},
                    ),
                ]
            },
            "Sampled": _object(["model"], model=_TEXT, n={"type": "integer"}),
            "ChatCompletionRequestMessage": _MESSAGE,
            "Choice": _CHOICE,
            "Chunk": _CHUNK,
            "Whole": _WHOLE,
            "Elsewhere": {"type": "object"},
        },
    ),
    "ollama": _document(
        {
            "/api/generate": _operation(
                "Asked",
                {
                    _JSON: {"$ref": f"{_PLACE}Line"},
                    "application/x-ndjson": {"$ref": f"{_PLACE}Line"},
                },
            )
        },
        {
            "Asked": _object(
                ["model", "prompt"],
                model=_TEXT,
                prompt=_TEXT,
                raw={"type": "boolean"},
                stream={"type": "boolean"},
            ),
            "Line": _object(["response", "done"], response=_TEXT, done={}),
        },
    ),
}
"""By the name of the API."""
