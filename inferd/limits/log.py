"""Bounds of the log: its lines, its files, and the lines that one user may cause."""

from typing import Final

LOG_QUEUE_LINES: Final = 4096
"""Log lines that wait for a slow output; further ones are dropped and counted. F-4."""

LOG_LINE_BYTES: Final = 32 * 1024
"""Bytes of one line: journald splits lines of 48 KiB. F-4."""

LOG_BATCH_BYTES: Final = LOG_LINE_BYTES
"""Bytes of lines after which an output's thread takes no further line before it writes: with the
last line they are 64 KiB at most, which an empty pipe takes at once. F-35."""

LOG_PAUSE_S: Final = 0.05
"""Seconds that an output's thread waits after a write, unless more lines wait than it took. Each
line that wakes it makes it take Python's lock from the event loop several times. A process that
is killed loses the lines of that time. F-35."""

LOG_VALUE_CHARS: Final = 8192
"""Characters of one value, and of the text that is searched for secrets: a traceback of
``LOG_TRACEBACK_FRAMES`` takes half of that. F-3, F-4."""

LOG_VALUE_DEPTH: Final = 4
"""Nesting depth of a structured value; deeper values are logged as text."""

LOG_TRACEBACK_FRAMES: Final = 16
"""Innermost frames of a traceback: from the bug to the request that triggered it."""

LOG_FILE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one log file, some 40,000 requests; set by the protocol. F-4."""

LOG_FILE_BYTES_MIN: Final = 2 * LOG_LINE_BYTES
"""Smallest file size that may be configured, so that any line fits."""

LOG_GENERATIONS: Final = 3
"""Full log files that are kept beside the current one; set by the protocol. F-4."""

LOG_GENERATIONS_MAX: Final = 99
"""Most generations that may be configured: each is renamed whenever a file is full."""

LOG_BURST_LINES: Final = 512
"""Log lines about one user's connections and refused requests in a burst: an eighth of an
output's queue. F-4."""

LOG_LINES_PER_S: Final = 2.0
"""Such lines per second in the long run: filling all log files with them takes one user most
of a day. Suppressed lines are counted. F-4."""

LOG_SERVED_BURST_LINES: Final = 1024
"""Log lines about one user's served requests in a burst. F-4."""

LOG_SERVED_LINES_PER_S: Final = 50.0
"""Such lines per second in the long run: more than a model can answer, and an hour of them
fills the log files. Suppressed lines are counted. F-4."""

REFUSAL_LOG_INTERVAL_S: Final = 10.0
"""Seconds between two log lines about refused connections of one user: a refused client may
reconnect at once. F-4."""

MAX_REFUSAL_LOG_KEYS: Final = 1024
"""Pairs of user and socket for which that interval is kept; the oldest is dropped first."""

LOG_TAIL_LINES: Final = 100
"""Newest lines that operators may read over the admin socket: what somebody reads who looks for
what has just gone wrong; the log has the rest. F-65."""

LOG_TAIL_LINE_BYTES: Final = 2048
"""Bytes of one of them, beyond which it has its first fields alone: all of them together are far
below what one line of the protocol may have. F-65."""
