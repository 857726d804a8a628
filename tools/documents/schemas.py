"""The JSON Schemas of the messages, from the structs of ``inferd.wire``."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from inferd.wire import (
    blocks,
    commands,
    observed,
    offered_facts,
    requests,
    responses,
    speech,
    status,
)
from tools.documents.markdown import attribute_docs, prose

REQUESTS: Mapping[str, type[Struct]] = {
    "generate-request": requests.GenerateRequest,
    "blocks-request": blocks.BlocksRequest,
    "embed-request": requests.EmbedRequest,
    "rerank-request": requests.RerankRequest,
    "describe": requests.DescribeRequest,
    "cancel": requests.CancelLine,
    "append": speech.AppendLine,
    "command": commands.Command,
}
ANSWERS: Mapping[str, type[Struct]] = {
    "token": responses.TokenFrame,
    "done": responses.DoneFrame,
    "frame": responses.BlockFrame,
    "blocks-done": responses.BlocksDone,
    "embeddings": responses.EmbeddingsFrame,
    "rerank": responses.RerankFrame,
    "models": responses.ModelsFrame,
    "progress": responses.ProgressFrame,
    "error": responses.ErrorFrame,
    "lifecycle": status.LifecycleFrame,
    "capabilities": status.CapabilitiesFrame,
    "reply": commands.Reply,
}
MESSAGES: Mapping[str, type[Struct]] = {**REQUESTS, **ANSWERS}
MODULES = (
    *(requests, blocks, responses, offered_facts, speech),
    *(status, observed, commands),
)
OWN_DOCS: Mapping[str, Mapping[str, str]] = {
    name: docs for module in MODULES for name, docs in attribute_docs(module).items()
}
NEEDED: Mapping[str, Any] = {
    "EmbedRequest": [
        {"required": ["input"]},
        {"required": ["tokens"], "properties": {"tokens": {"type": "array"}}},
    ],
}
"""Of a message with fields of which one is needed: what a message must have one of."""
READERS_OWN = ("UnknownBlock", "UnknownAttachment")
"""What a reader makes of types that it does not know: nobody sends them."""
REFERENCES = tuple(f"#/$defs/{name}" for name in READERS_OWN)
TOLERANCE = (
    "What this version sends. A later version may have more of all that is listed."
)
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_text(message: type[Struct]) -> str:
    """Write a message's JSON Schema."""
    schema = without_readers_own(msgspec.json.schema(message))
    head = {"$schema": DIALECT}
    for name, definition in schema["$defs"].items():
        describe(definition, docs_of(name))
        if name in NEEDED:
            definition["anyOf"] = NEEDED[name]
    if message in ANSWERS.values():
        head["$comment"] = TOLERANCE
        require_what_is_sent(schema["$defs"][message.__name__], message)
    return json.dumps({**head, **schema}, indent=2, ensure_ascii=False) + "\n"


def without_readers_own(node: Any) -> Any:
    """Leave out what only a reader makes, with every mention of it."""
    match node:
        case dict():
            return {
                key: without_readers_own(value)
                for key, value in node.items()
                if key not in READERS_OWN and value not in REFERENCES
            }
        case list():
            return [
                without_readers_own(each)
                for each in node
                if not (isinstance(each, dict) and each.get("$ref") in REFERENCES)
            ]
        case _:
            return node


def docs_of(name: str) -> dict[str, str]:
    """Collect the docstrings of a struct's fields, those it inherits among them."""
    classes = [getattr(module, name) for module in MODULES if hasattr(module, name)]
    return {
        field: text
        for each in reversed(classes[0].__mro__)
        for field, text in OWN_DOCS.get(each.__name__, {}).items()
    }


def describe(definition: dict[str, Any], docs: Mapping[str, str]) -> None:
    """Add the fields' docstrings to one definition of a schema."""
    definition["description"] = prose(definition["description"])
    for field, text in docs.items():
        definition["properties"][field]["description"] = text


def require_what_is_sent(definition: dict[str, Any], message: type[Struct]) -> None:
    """List the fields that the daemon always writes, those with defaults as well."""
    tag = message.__struct_config__.tag_field
    definition["required"] = [
        *([tag] if tag else []),
        *(
            field.encode_name
            for field in msgspec.structs.fields(message)
            if field.default is not UNSET
        ),
    ]
