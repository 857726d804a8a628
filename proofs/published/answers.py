"""Answers of the bridge, compared with what a published document says of them; pure."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import jsonschema_rs
import msgspec
from msgspec import Struct

from inferd.bridge.translation.api import Api
from proofs.published.documents import EVENTS, Schema, at, operations_of

LINES: Final = "application/x-ndjson"
JSON: Final = "application/json"
DONE: Final = "[DONE]"
"""The event that ends streams of OpenAI's API, and is no JSON."""
_PARAMETER: Final = re.compile(r"\{[a-z]+\}")
_MAX_CHARS: Final = 200
"""Of what a validator says."""


class Body(Struct, rename="camel"):
    """A body, as HAR has it."""

    mime_type: str = ""
    text: str = ""
    encoding: str = ""

    @property
    def data(self) -> bytes:
        """The bytes."""
        if self.encoding == "base64":
            return base64.b64decode(self.text)
        return self.text.encode()

    @property
    def media(self) -> str:
        """The media type, without its parameters."""
        return self.mime_type.partition(";")[0].strip()


class Asked(Struct):
    """A request."""

    method: str
    url: str


class Answered(Struct):
    """What it was answered."""

    status: int
    content: Body


class Exchange(Struct):
    """A request with its answer."""

    request: Asked
    response: Answered


class Log(Struct):
    """All requests of a run."""

    entries: list[Exchange]


class Archive(Struct):
    """The file, as HAR has it."""

    log: Log


class Judge:
    """Compares answers with a document.

    Args:
        document: trimmed.
        base: what paths begin with that it leaves out.
        api: in whose form failures are told.
    """

    def __init__(self, document: Schema, base: str, api: Api) -> None:
        self._document = document
        self._api = api
        self._operations = {
            (method, path): re.compile(base + _PARAMETER.sub(".+", path))
            for method, path in operations_of(document)
        }
        self._validators: dict[str, jsonschema_rs.Validator] = {}
        self.n_checked: dict[str, int] = {}
        """Bodies and events that were validated, by the path and the media type."""

    def faults(self, exchange: Exchange) -> Iterator[str]:
        """Yield what an answer has that the document has not, or lacks."""
        answer = exchange.response
        where = self._operation(exchange.request)
        if answer.status >= 500:  # noqa: PLR2004  # failures of the server
            yield f"{' '.join(where)}: status {answer.status}"
        elif answer.status >= 400:  # noqa: PLR2004  # failures of the client
            yield from self._failure(where, answer.content)
        else:
            yield from self._success(where, answer)

    def _operation(self, asked: Asked) -> tuple[str, str]:
        path = urlsplit(asked.url).path
        for (method, template), pattern in self._operations.items():
            if method == asked.method and pattern.fullmatch(path):
                return method, template
        return asked.method, "another path"

    def _failure(self, where: tuple[str, str], body: Body) -> Iterator[str]:
        try:
            msgspec.json.decode(body.data, type=self._api.failure)
        except msgspec.DecodeError as error:
            yield f"{' '.join(where)}: a failure of another form: {error}"
        if body.media != JSON:
            yield f"{' '.join(where)}: a failure as {body.media}"

    def _success(self, where: tuple[str, str], answer: Answered) -> Iterator[str]:
        method, path = where
        body = answer.content
        place = ("paths", path, method.lower(), "responses", str(answer.status))
        content = at(self._document, (*place, "content"))
        if body.media not in content:
            yield f"{' '.join(where)}: {answer.status} as {body.media}"
            return
        name = f"{path} {body.media}"
        schema = at(content, (body.media, "schema"))
        for value in values_of(body):
            self.n_checked[name] = self.n_checked.get(name, 0) + 1
            for error in self._validator(name, schema).iter_errors(value):
                yield f"{' '.join(where)} as {body.media}: {_words(error, value)}"

    def _validator(self, name: str, schema: Schema) -> jsonschema_rs.Validator:
        if name not in self._validators:
            whole = {**schema, "components": self._document["components"]}
            self._validators[name] = jsonschema_rs.Draft202012Validator(
                whole, validate_formats=True
            )
        return self._validators[name]


def _words(error: jsonschema_rs.ValidationError, value: object) -> str:
    """Say what is wrong of which kind of event; the same of all that are alike."""
    place = "/".join(str(step) for step in error.instance_path if step != "")
    kind = value.get("type", "") if isinstance(value, dict) else ""
    rule = "/".join(map(str, error.schema_path))
    message = error.message if place else ""  # else it quotes all of the value
    return f"{kind} {place}: {message} ({rule})"[:_MAX_CHARS]


def values_of(body: Body) -> Iterator[object]:
    """Yield what is validated: the body, or each event of a stream.

    Raises:
        ValueError: something is no JSON, or an event has another name than its type.
    """
    text = body.data.decode()
    if body.media == EVENTS:
        yield from _events(text)
    elif body.media == LINES:
        yield from map(json.loads, filter(None, text.split("\n")))
    elif body.media == JSON:
        yield json.loads(text)
    else:
        yield text


def _events(text: str) -> Iterator[object]:
    for block in filter(None, text.split("\n\n")):
        fields = _fields(block)
        if "data" not in fields or fields["data"] == DONE:
            continue  # a comment that keeps the stream alive, or its end
        value = json.loads(fields["data"])
        if fields.get("event", value.get("type")) != value.get("type"):
            raise ValueError(f"event {fields['event']} has type {value.get('type')}")
        yield value


def _fields(block: str) -> Mapping[str, str]:
    pairs = (line.partition(": ") for line in block.split("\n") if line[:1] != ":")
    return {name: value for name, _, value in pairs}
