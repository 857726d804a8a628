"""The JSON Schemas of the messages, from the structs of ``inferd.wire``."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from inferd.wire import requests, responses, status
from tools.documents.markdown import attribute_docs, prose

MESSAGES: Mapping[str, type[Struct]] = {
    "generate-request": requests.GenerateRequest,
    "token": responses.TokenFrame,
    "done": responses.DoneFrame,
    "error": responses.ErrorFrame,
    "lifecycle": status.LifecycleFrame,
    "capabilities": status.CapabilitiesFrame,
}
MESSAGE_DOCS: Mapping[str, Mapping[str, str]] = {
    name: docs
    for module in (requests, responses, status)
    for name, docs in attribute_docs(module).items()
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_text(message: type[Struct]) -> str:
    """Write a message's JSON Schema."""
    schema = {"$schema": DIALECT, **msgspec.json.schema(message)}
    for name, definition in schema["$defs"].items():
        describe(definition, MESSAGE_DOCS.get(name, {}))
    if message is not requests.GenerateRequest:
        require_what_is_sent(schema["$defs"][message.__name__], message)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


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
