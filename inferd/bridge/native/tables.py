"""The fields of requests in the daemon's own protocol, and what becomes of each."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from inferd.bridge.translation.fields import (
    Field,
    FieldTable,
    honoured,
    ignored,
    refused,
)
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import DescribeRequest, EmbedRequest, RerankRequest

_NOTES: Final[dict[str, str]] = {
    "id": "Comes back on each frame; the daemon's log has the bridge's own.",
    "attachments": "With `bytes`: no descriptor comes over HTTP, and recordings are sent as "
    "files, to `/inferd/transcribe`.",
    "stream": "The frames are sent as they come in any case.",
    "max_tokens": "Default: `bridge.default_max_tokens`.",
}


def _fields(kind: type[Struct], **notes: str) -> Iterator[Field]:
    """Give the fields of the requests of a socket, some with other notes than usual."""
    for name in kind.__struct_fields__:
        if name == "principal":
            yield from refused(name, note="Whose request it is follows from the token.")
        else:
            yield from honoured(name, note=(_NOTES | notes).get(name, ""))


GENERATE: Final = FieldTable("POST /inferd/generate", [*_fields(BlocksRequest)])
EMBED: Final = FieldTable("POST /inferd/embed", [*_fields(EmbedRequest)])
RERANK: Final = FieldTable("POST /inferd/rerank", [*_fields(RerankRequest)])
TRANSCRIBE: Final = FieldTable(
    "POST /inferd/transcribe",
    (
        *honoured(
            "request",
            note="A request as for `/inferd/generate`, whose one attachment is the recording: "
            "audio that is `open`.",
        ),
        *honoured("file", note="The recording, in a format that FFmpeg reads."),
    ),
)
LIVE: Final = FieldTable(
    "POST /inferd/live",
    [
        *_fields(
            BlocksRequest,
            attachments="Audio that is `open`, and no other. The body has the request on its "
            "first line and `append` lines behind it, while the frames of the answer come "
            "back; the end of the body ends the sound.",
        )
    ],
)
MODELS: Final = FieldTable(
    "POST /inferd/models",
    (
        *_fields(DescribeRequest),
        *ignored("type", note="The route says what is asked."),
    ),
)
