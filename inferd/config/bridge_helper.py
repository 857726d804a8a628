"""The settings of the bridge's helper: the table ``[bridge_helper]``."""

from typing import Annotated

from msgspec import Meta, Struct

from inferd.limits.bridge import (
    HELPER_FREE_BYTES,
    HELPER_PULL_BYTES,
    HELPER_PULL_S,
    MAX_ALLOWED_SOURCES,
    PULLS_PER_HOUR,
)
from inferd.wire.management import HelperCommand

HelperUid = Annotated[int, Meta(ge=0, le=2**32 - 2)] | str
AllowedSource = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1024,
        pattern=r"^(hf:[!-~]*|https://[!-~]+/[!-~]*|embedded:[!-~]*)\Z",
    ),
]


class HelperSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``inferd bridge helper`` does for holders of tokens; others ignore this table."""

    uids: Annotated[tuple[HelperUid, ...], Meta(max_length=64)] = ()
    """Users who may ask it, by number or name, besides its own: that of the bridge, if it is
    another one. The unit of the machine's helper adds ``inferd-bridge``."""
    allow: tuple[HelperCommand, ...] = ("list", "show", "status", "machine")
    """What it does: ``list``, ``show``, ``pull`` and ``remove`` models of the store for tokens
    with the scope ``models``; ``status``, ``machine`` (requests and metrics), ``log`` (its newest
    lines, which name users and files), ``load``, ``unload`` and ``reload`` of the daemon for
    those with ``admin``. By default nothing that changes anything, and not the log."""
    allow_sources: Annotated[
        tuple[AllowedSource, ...], Meta(max_length=MAX_ALLOWED_SOURCES)
    ] = ()
    """Sources from which models may be pulled, and whose models may be removed: whole ones, or
    beginnings such as ``hf:OWNER/``, ``hf:OWNER/REPO``, ``https://HOST/DIRECTORY/`` and
    ``embedded:``. Default: none."""
    max_pull_bytes: Annotated[int, Meta(ge=1)] = HELPER_PULL_BYTES
    """Bytes of the files of a model that is pulled."""
    max_pull_s: Annotated[float, Meta(gt=0, le=7 * 86_400)] = HELPER_PULL_S
    """Seconds that a pull may take."""
    pulls_per_hour: Annotated[int, Meta(ge=1, le=10_000)] = PULLS_PER_HOUR
    """Pulls that are begun within an hour, half of them at most for one token."""
    min_free_bytes: Annotated[int, Meta(ge=0)] = HELPER_FREE_BYTES
    """Bytes of the store's file system that a pull leaves free."""
