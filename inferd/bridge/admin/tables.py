"""The fields of requests to manage models, and what becomes of each."""

from typing import Final

from inferd.bridge.translation.fields import FieldTable, honoured

PULL: Final = FieldTable(
    "POST /admin/pull",
    (
        *honoured(
            "source",
            note="`hf:OWNER/REPO[:QUANT|/FILE][@REVISION]`, `https://HOST/PATH` with "
            "`sha256`, or `embedded:NAME`; `allow_sources` of the helper decides.",
        ),
        *honoured(
            "name", note="In the store; without it one that follows from `source`."
        ),
        *honoured("sha256", note="Of the file at an address."),
        *honoured(
            "stream",
            note="Default true: lines of JSON, the last of which has the type `done` or "
            "`error`. A client that hangs up ends the pull; the next one goes on there.",
        ),
    ),
)
_BACKEND: Final = honoured(
    "model", note="Name or alias of a backend whose model is loaded on demand."
)
LOAD: Final = FieldTable("POST /admin/load", _BACKEND)
UNLOAD: Final = FieldTable("POST /admin/unload", _BACKEND)
