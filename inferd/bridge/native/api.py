"""The record of the daemon's own protocol over HTTP."""

from collections.abc import Sequence
from typing import Final

from inferd.bridge.native import tables
from inferd.bridge.native.failures import failure_line
from inferd.bridge.native.request import (
    ask_blocks,
    ask_live,
    ask_ranking,
    ask_recording,
    ask_vectors,
)
from inferd.bridge.translation.api import (
    Api,
    FormOperation,
    LiveOperation,
    Lookup,
    OfferedModel,
    Operation,
)
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.query import NO_QUERY
from inferd.wire.codec import encode
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.requests import DescribeRequest
from inferd.wire.responses import ModelsFrame


class FrameStream:
    """The form of streams: a frame on each line, and spaces to keep them alive."""

    content_type = "application/x-ndjson"
    keep_alive = b" "

    def failure_event(self, failure: BridgeError) -> bytes:
        """Return the frame that ends a stream that fails."""
        return failure_line(failure)


def describe_models(body: bytes, models: Sequence[OfferedModel], _: int) -> bytes:
    """Return the frame that describes the models.

    Raises:
        BridgeError: the request is refused.
    """
    wanted = read_body(body, tables.MODELS, DescribeRequest)
    facts: dict[str, OfferedFacts] = {}
    for each in models:
        if each.facts is not None and wanted.model in {None, each.name}:
            facts.setdefault(each.facts.backend, each.facts)
    return encode(ModelsFrame(id=wanted.id, models=[*facts.values()]))


_STREAM: Final = FrameStream()

NATIVE: Final = Api(
    name="native",
    prefixes=("/inferd/",),
    operations=(
        Operation("/inferd/generate", ask_blocks, tables.GENERATE, _STREAM),
        Operation("/inferd/embed", ask_vectors, tables.EMBED),
        Operation("/inferd/rerank", ask_ranking, tables.RERANK),
        FormOperation("/inferd/transcribe", ask_recording, tables.TRANSCRIBE, _STREAM),
        LiveOperation("/inferd/live", ask_live, tables.LIVE, _STREAM),
    ),
    lookups=(
        Lookup(
            "POST",
            "/inferd/models",
            describe_models,
            "Describe the models",
            note="A `models` frame, with what the sockets tell of each model.",
            table=tables.MODELS,
            reasons=(Reason.UNKNOWN_FIELD, Reason.UNAVAILABLE),
        ),
    ),
    error_body=failure_line,
    query=NO_QUERY,
)
