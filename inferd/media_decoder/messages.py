"""Messages between the bridge, the process that forks decoders, and a decoder.

The first two speak over a socket of packets. A task comes with three descriptors: the file in a
sealed memfd, an empty memfd for what is decoded, and a pipe for the report. It is answered with
``Forked`` and a descriptor of the decoder's process, through which the bridge ends it.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from inferd.limits.media_decoder import MAX_FAULT_CHARS

N_TASK_FDS: Final = 3
"""Descriptors of a task: the file, the memfd to write to, the pipe."""
BYTES_PER_PIXEL: Final = 3
U32_MAX: Final = 2**32 - 1

Words = Annotated[str, Meta(max_length=MAX_FAULT_CHARS)]
Size = Annotated[int, Meta(ge=0, le=U32_MAX)]


class ForkServerReady(Struct, frozen=True, kw_only=True, tag=True):
    """The first message of the process that forks."""

    missing: tuple[str, ...] = ()
    """What the kernel lacks to confine it."""
    not_installed: str = ""
    """A package that it lacks; it decodes nothing then."""


class DecodeMedium(Struct, frozen=True, kw_only=True):
    """A file to decode."""

    kind: Literal["picture", "sound"]
    max_pixels: int
    """Of a picture."""
    max_bytes: int
    """Of what is decoded."""
    max_cpu_s: int
    """Seconds of processor time."""


class Forked(Struct, frozen=True, tag=True):
    """A decoder was forked; its descriptor comes with this."""


class NotForked(Struct, frozen=True, tag=True):
    """The kernel had no process or memory for it."""


class DecoderReport(Struct, frozen=True, kw_only=True):
    """What a decoder says at its end."""

    width: Size = 0
    """Pixels of a row."""
    height: Size = 0
    """Rows of a picture; 0 for sound."""
    fault: Words = ""
    """Why the file cannot be decoded; empty if it was."""


ENCODER: Final = msgspec.msgpack.Encoder()
READY: Final = msgspec.msgpack.Decoder(ForkServerReady)
TASK: Final = msgspec.msgpack.Decoder(DecodeMedium)
FORK_REPLY: Final = msgspec.msgpack.Decoder(Forked | NotForked)
REPORT: Final = msgspec.msgpack.Decoder(DecoderReport)
