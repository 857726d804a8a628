"""Bounds of reading large lines: value, unit, reason."""

from typing import Final

READ_CPU_S: Final = 10
"""Seconds of processor time that one line may take to be read: the slowest ones of 64 MiB that
were found take 3. F-35."""

READ_MEMORY_BYTES: Final = 3 * 1024 * 1024 * 1024
"""Bytes of memory that a process may have: a line of 64 MiB that is all small objects takes
over 1 GiB. F-35."""

KEPT_MEMORY_BYTES: Final = 256 * 1024 * 1024
"""Bytes above which a process ends once it has answered: Python gives little of it back."""

MAX_TOOLS_BYTES: Final = 1024 * 1024
"""Bytes of the tools of a large line, as the daemon has to have them as well: 250,000 tokens of
a prompt. F-35."""

MAX_FAILURE_CHARS: Final = 2048
"""Characters of why a line is refused; what clients are told is cut off before. F-35."""

MAX_HEAD_BYTES: Final = 2 * 1024 * 1024
"""Bytes of what the daemon has to know of a large line, besides the documents of a rerank
request: it decodes them at once, in some 5 ms. Tools take half of them at most, the id of a
request as long as may be a quarter. F-35."""
