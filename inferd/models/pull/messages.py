"""Messages between a command and its downloader, over a socket pair.

Each has a header: one byte that says whether data or JSON follows, and the number of bytes,
32 bits, little endian. The command sends a task and gets ``Listing``, or ``Head``, data and
``End``; or a ``Failure`` in place of any of them. Neither trusts lengths of the other.
"""

import struct
from typing import Annotated, Final, Literal

import msgspec

from inferd.limits.models import PULL_MAX_LISTED, SOURCE_MAX_CHARS

HEADER: Final = struct.Struct("<BI")
MESSAGE: Final = 0
"""First byte of the header of a JSON message."""
DATA: Final = 1
"""First byte of the header of bytes of a file."""

DETAIL_MAX_CHARS: Final = 300
"""Characters of the detail of a failure, which a server may have written."""

Size = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Name = Annotated[str, msgspec.Meta(max_length=SOURCE_MAX_CHARS)]
FailureCode = Literal[
    "unreachable",
    "certificate",
    "status",
    "not_found",
    "not_allowed",
    "redirect",
    "web_page",
    "stalled",
    "dropped",
    "invalid",
    "not_installed",
]


class Fetch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Task: send the bytes of a file."""

    url: str
    offset: int = 0
    """Bytes that are not wanted again, if the server can leave them out."""
    etag: str = ""
    """That the file had when those bytes came; if it has another now, all are sent."""
    is_pinned: bool = False
    """Whether the SHA-256 is known, so that any host may have the bytes."""
    token: str = ""
    """For the host of the address, and no other."""


class ListHub(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Task: list the files of a repository of the hub."""

    repository: str
    revision: str = ""
    """A branch, tag or commit; empty for the main branch."""
    token: str = ""


Task = Fetch | ListHub


class DownloaderReady(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Reply: the downloader is restricted, and waits for a task."""

    missing: tuple[str, ...] = ()
    """What the kernel lacks for that."""


class Head(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Reply: the file is there, and its bytes follow."""

    offset: Size
    """Of the first byte that follows."""
    n_bytes: Size | None = None
    """Of the whole file; ``None`` if the server does not state it."""
    etag: Annotated[str, msgspec.Meta(max_length=SOURCE_MAX_CHARS)] = ""
    """A strong one; empty if there is none."""


class End(msgspec.Struct, frozen=True, tag=True):
    """Reply: these were all bytes."""


class HubFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a repository."""

    path: Name
    url: Name
    n_bytes: Size
    sha256: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    """Empty if the hub does not state it."""


class Listing(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Reply: the files of a repository, at one commit."""

    commit: Annotated[str, msgspec.Meta(pattern="^[0-9a-zA-Z]{1,64}$")]
    license: Annotated[str, msgspec.Meta(max_length=DETAIL_MAX_CHARS)] = ""
    files: Annotated[tuple[HubFile, ...], msgspec.Meta(max_length=PULL_MAX_LISTED)]


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Reply: the task failed; the downloader waits for another, if it still runs."""

    code: FailureCode
    detail: Annotated[str, msgspec.Meta(max_length=DETAIL_MAX_CHARS)] = ""


Reply = DownloaderReady | Head | End | Listing | Failure

TASKS: Final[msgspec.json.Decoder[Task]] = msgspec.json.Decoder(Task)
REPLIES: Final[msgspec.json.Decoder[Reply]] = msgspec.json.Decoder(Reply)


def framed(message: Task | Reply) -> bytes:
    """Encode a message with its header."""
    data = msgspec.json.encode(message)
    return HEADER.pack(MESSAGE, len(data)) + data
