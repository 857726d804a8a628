"""Bounds of connections and what they read, write and hold (settings: ``[limits]``)."""

from typing import Final

from inferd.limits.protocol import MAX_FRAME_BYTES

READ_AHEAD_REQUESTS: Final = 64
"""Requests read from a connection while an earlier one is answered, so that a cancel line
behind them takes effect; further ones wait in the kernel's buffer. F-1."""

READ_AHEAD_BYTES: Final = 1024 * 1024
"""Bytes of the requests read ahead; a larger request waits until it is next. F-1."""

MAX_CONNECTIONS: Final = 1024
"""Clients connected at once over all inference sockets. A connection costs some 40 kB."""

MAX_UID_RANGES: Final = 1024
"""Uid ranges in the configuration; directory services have them by the dozen. F-36."""

MAX_ADMIN_CONNECTIONS: Final = 64
"""Clients connected to the admin socket at once. They are counted separately, so that the
admin socket answers under load."""

IDLE_S: Final = 600.0
"""Seconds without a request after which a connection may be closed when free connections
are scarce: longer than people pause between two questions. F-28."""

LINE_TIMEOUT_S: Final = 60.0
"""Seconds from the first byte of a line to its last: a program that has a line ready sends
even 64 MiB in less than one second. F-28."""

LIMITED_LINE_BYTES: Final = 128 * 1024
"""Bytes of an unfinished line from which on only ``MAX_LARGE_LINES`` lines are read at once.
Prompts of some 30,000 tokens stay below, and 1,024 unfinished lines of this size take
128 MiB. From ``OFFLOAD_LINE_BYTES`` on, which is less, a line is large: it is decoded in
another process. F-28."""

MAX_LARGE_LINES: Final = 4
"""Lines of ``LIMITED_LINE_BYTES`` and more that are read at once, over all connections: each
may grow to ``MAX_FRAME_BYTES``, so they take 256 MiB at most. F-28."""

WRITE_TIMEOUT_S: Final = 60.0
"""Seconds one write may take before a client that stopped reading is disconnected. F-17."""

MAX_UNREAD_BYTES: Final = 2 * MAX_FRAME_BYTES
"""Bytes of finished answers that clients have not read yet: two of the largest, or thousands
of chat answers. They hold no permit. F-17."""

MAX_MEDIA_BYTES: Final = 256 * 1024 * 1024
"""Bytes of decoded pixels and audio that the daemon itself holds: those of five of the
largest lines, or of fifteen live recordings. F-30."""

MAX_PASSED_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of all files whose descriptors are passed with one request: four hours of audio. They
are the client's own memory, but a worker reads all of them. F-30."""

MAX_APPENDED_BYTES: Final = 24 * 3600 * 16_000 * 4
"""Bytes of audio that may be appended to one request in all: a day at 16 kHz. Audio that the
worker has read is discarded. F-30."""

MAX_AUDIO_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Bytes of appended audio that the worker has not read yet: four minutes. More stays at the
client. F-30."""

MIN_AUDIO_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""Smallest ``max_audio_ahead_bytes`` that may be configured. A model reads 30 s of audio at
once, 2 MB; with less capacity it would wait for ever."""

DRAIN_S: Final = 15.0
"""Seconds that running and queued requests get to finish after SIGTERM."""

LISTEN_BACKLOG: Final = 1024
"""Connections that the kernel queues before accept, as many as ``MAX_CONNECTIONS``. The queue
is first come, first served: a user who fills it delays others until all are accepted, some
30 ms, and non-blocking clients get EAGAIN from a full one. F-35."""

ADMIN_LISTENER_EVENTS: Final = 256
"""Status frames that an admin client may lag behind before its connection is closed; set by
the protocol."""

SOCKET_PATH_BYTES: Final = 107
"""Longest AF_UNIX path on Linux, without its final NUL."""

READ_BYTES: Final = 64 * 1024
"""Bytes of one ``recv``: the capacity of a pipe, small beside a frame."""

WRITE_BYTES: Final = 64 * 1024
"""Bytes of one write to a socket, in some 50 µs. A write to a non-blocking socket goes on for as
long as the other side reads meanwhile: with a whole line of 62 MB that was 50 ms of the event
loop's time. Frames are encoded until there are so many. F-35."""
