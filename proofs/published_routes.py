"""Requests drawn from the documents that OpenAI and Ollama publish, and their answers."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, cast

import msgspec.json
import msgspec.yaml

from inferd.bridge.ollama.api import OLLAMA
from inferd.bridge.openai.api import OPENAI
from inferd.bridge.translation.api import Api
from proofs.drawn import send_drawn
from proofs.published import limits
from proofs.published.answers import Archive, Judge
from proofs.published.documents import (
    EVENTS,
    Schema,
    Served,
    at,
    corrected,
    operations_of,
    trim,
    with_answer,
    with_value,
    without_events,
)
from proofs.published.requests import Limits, limits_of, narrow, request_fields
from proofs.published.sample import SAMPLES
from tests.daemon.bridge import BridgeProcess, bridge_to
from tests.daemon.configuration import llamacpp, mock
from tests.daemon.fixtures import daemons
from tools.wheel import cache
from torture.outcome import Context, Size, SkippedError

KEY: Final = "published-routes"
NAME: Final = "Requests drawn from the documents of OpenAI and Ollama"
CHECKS: Final = (
    "not_a_server_error,content_type_conformance,response_schema_conformance"
)
"""The others compare with what the documents do not say: which requests fail, and how."""
CALL: Final = '<tool_call>{"name":"weather","arguments":{"city":"Paris"}}</tool_call>'
ANSWER: Final = ["<think>", "hm", "</think>", "Look", ": ", CALL]
_CHUNK: Final[Schema] = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices"],
    "properties": {
        "object": {"enum": ["text_completion"]},
        "choices": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["finish_reason", "index", "logprobs", "text"],
                "properties": {
                    "finish_reason": {"enum": ["stop", "length", None]},
                    "index": {"type": "integer"},
                    "text": {"type": "string"},
                },
            },
        },
    },
}
"""The form of chunks of older completions: the document has them in an example alone."""
_VECTOR: Final = (*("components", "schemas", "Embedding", "properties"), "embedding")
"""Published is an array of numbers, and a request may ask for a text in base64."""
OF_EXAMPLES: Final = ("gemma4", "embeddinggemma")
"""Models of the examples in Ollama's document."""
MAX_TOKENS: Final = 8
"""Of answers to requests that do not bound them."""
MAX_STATED: Final = 20
"""Faults that are stated of an API; the others are counted."""


@dataclass(frozen=True)
class Source:
    """A document, and where its operations are at the bridge."""

    file: str
    api: Api
    base: str
    """What our paths begin with that it leaves out."""
    read: Callable[[bytes], object]


SOURCES: Final = (
    Source("openai.json", OPENAI, "/v1", msgspec.json.decode),
    Source("ollama.yaml", OLLAMA, "", msgspec.yaml.decode),
)


def run(context: Context) -> None:
    """Send requests as they are published, and others cut to what is served."""
    script = mock(
        name=limits.CHAT,
        tokens=ANSWER,
        vision=True,
        audio=True,
        aliases=[*OF_EXAMPLES, *context.pick(short=[limits.MODEL], full=[])],
    )
    speech = mock(
        name=limits.SPEECH, tokens=["one ", "two"], audio=True, transcribe=True
    )
    model = llamacpp("embedded:chat", name=limits.MODEL, n_ctx=2048)
    with daemons() as make:
        daemon = make(
            {
                "backend": [script, speech, *context.pick(short=[], full=[model])],
                "admission": {"max_queued": 100},
                "bridge": {"default_max_tokens": MAX_TOKENS},
            }
        ).start()
        with bridge_to(daemon) as bridge:
            for source in SOURCES:
                _try_source(context, source, bridge)
            bugs = bridge.logged("http_request.failed")
    context.require(not bugs, f"bugs: {bugs[:1]}")


def served_by(api: Api, base: str) -> list[Served]:
    """List the operations of an API that the bridge serves, as a document has them.

    Those that its helper answers are left out: without one they say what is missing.
    """
    served = [("POST", each.path) for each in api.operations]
    served += [(each.method, each.path) for each in api.lookups if not each.is_refused]
    if api.models_path:
        served += [("GET", api.models_path), ("GET", f"{api.models_path}/{{model}}")]
    return [(method, path.removeprefix(base)) for method, path in served]


def served_part(document: Schema, source: Source) -> Schema:
    """Return what a document says of the operations that are served.

    Raises:
        AssertionError: a field of their requests is in no table.
    """
    part = cast("Schema", corrected(trim(document, served_by(source.api, source.base))))
    for operation in source.api.operations:
        path = operation.path.removeprefix(source.base)
        known = {field.name.removesuffix("[]") for field in operation.table.fields}
        unknown = request_fields(part, path) - known
        if unknown:
            raise AssertionError(f"{path}: not in its table: {unknown}")
        for media in operation.texts:
            part = with_answer(part, path, media.partition(";")[0], {"type": "string"})
    vector = at(part, _VECTOR)
    if vector:
        part = with_value(part, _VECTOR, {"anyOf": [vector, {"type": "string"}]})
    return with_answer(part, "/completions", EVENTS, _CHUNK)


def _try_source(context: Context, source: Source, bridge: BridgeProcess) -> None:
    document = _document(context, source)
    part = served_part(document, source)
    name = source.api.name
    judge = Judge(part, source.base, source.api)
    phases = context.pick(short="fuzzing", full="examples,coverage,fuzzing")
    faults = Counter[str]()
    for kind, (document, mode) in _kinds(source, part).items():
        said, archive = _send(
            document,
            ["--url", bridge.address + source.base, "--mode", mode, "--phases", phases],
            n_examples=context.pick(short=3, full=100),
            seed=context.seed,
        )
        faults.update(said)
        for exchange in archive.log.entries:
            faults.update(judge.faults(exchange))
        statuses = Counter(each.response.status for each in archive.log.entries)
        context.counts[f"{name}_{kind}_requests"] = len(archive.log.entries)
        for status, number in sorted(statuses.items()):
            context.counts[f"{name}_{kind}_status_{status}"] = number
    answered = {each.partition(" ")[0] for each in judge.n_checked}
    lacking = {path for _, path in operations_of(part)} - answered
    context.require(not lacking, f"{name}: no answer was compared of {lacking}")
    context.counts[f"{name}_operations"] = len(operations_of(part))
    context.counts[f"{name}_bodies_and_events"] = sum(judge.n_checked.values())
    context.counts[f"{name}_failures"] = len(faults)
    context.problems += [
        f"{name}: {fault} ({number} times)"
        for fault, number in faults.most_common(MAX_STATED)
    ]
    checked = ", ".join(f"{each} {n}" for each, n in sorted(judge.n_checked.items()))
    context.notes.append(f"{name}, bodies and events that were compared: {checked}")


def _kinds(source: Source, part: Schema) -> dict[str, tuple[Schema, str]]:
    """Return documents, and which requests are drawn from each."""
    fields: dict[str, Limits] = {}
    for operation in source.api.operations:
        honoured = limits.FIELDS.get(operation.path, {})
        path = operation.path.removeprefix(source.base)
        fields[path] = limits_of(operation.table, honoured)
    for lookup in source.api.lookups:
        fields[lookup.path] = limits.FIELDS.get(lookup.path, {})
    needed, stream = limits.NEEDED, {limits.STREAM}
    kinds: dict[str, tuple[Schema, str]] = {"any": (part, "all")}
    for kind, is_streamed in (("whole", False), ("streamed", True)):
        stated: dict[str, Schema | None] = {limits.STREAM: limits.one_of(is_streamed)}
        stated |= {} if is_streamed else {limits.STREAM_OPTIONS: None}
        narrowed = {path: {**each, **stated} for path, each in fields.items()}
        document = narrow(part, narrowed, limits.SCHEMAS, needed | stream)
        kinds[kind] = (_streams(document) if is_streamed else document, "positive")
    return kinds


def _streams(document: Schema) -> Schema:
    """Return a document of the operations whose requests have a stream."""
    paths = at(document, ("paths",))
    asked = {path for path in paths if limits.STREAM in request_fields(document, path)}
    return {**document, "paths": {path: paths[path] for path in asked}}


def _document(context: Context, source: Source) -> Schema:
    """Read a document; the short form has one of its own.

    Raises:
        SkippedError: it is not there.
    """
    if context.size is Size.SHORT:
        return SAMPLES[source.api.name]
    path = cache() / "published" / source.file
    if not path.is_file():
        raise SkippedError(f"{path} is missing; proofs/README.md says which file it is")
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    document = cast("Schema", source.read(data))
    version = at(document, ("info",)).get("version")
    context.notes.append(f"`{source.file}`: version {version}, SHA-256 `{digest}`")
    return document


def _send(
    document: Mapping[str, object],
    options: list[str],
    *,
    n_examples: int,
    seed: int,
) -> tuple[list[str], Archive]:
    """Send requests drawn from a document; return what the program says, and all answers."""
    with TemporaryDirectory(prefix="published-") as scratch:
        path, archive = Path(scratch, "document.json"), Path(scratch, "all.har")
        path.write_text(json.dumps(without_events(document)))
        report = send_drawn(
            str(path),
            [
                *options,
                *("--checks", CHECKS, "--continue-on-failure", "--no-shrink"),
                *("--report-har-path", str(archive), "--report-preserve-bytes"),
            ],
            n_examples=n_examples,
            seed=seed,
        )
        operations = report.operations
        faults = [
            f"schemathesis: {failure.title}: {operation}"
            for failure in report.failures
            for operation in failure.operations
        ]
        if operations.tested < operations.selected:
            faults.append("schemathesis: operations were not tested")
        return faults, msgspec.json.decode(archive.read_bytes(), type=Archive)
