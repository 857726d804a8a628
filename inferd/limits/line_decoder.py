"""Bounds of the process that decodes large request lines: value, unit, reason."""

from typing import Final

DECODE_CPU_S: Final = 10
"""Seconds of processor time for decoding one line: the slowest known lines of 64 MiB take 4.
F-35."""

DECODE_MEMORY_BYTES: Final = 3 * 1024 * 1024 * 1024
"""Bytes of address space of one process: a line of 64 MiB that consists of small objects
takes over 1 GiB. F-35."""

RECYCLE_MEMORY_BYTES: Final = 256 * 1024 * 1024
"""Bytes of memory above which a process ends after its answer: Python returns little memory
to the kernel."""

MAX_TOOLS_BYTES: Final = 1024 * 1024
"""Bytes of the tools of a large line, which the daemon needs as well: 250,000 tokens of a
prompt. F-35."""

MAX_FAILURE_CHARS: Final = 2048
"""Characters of the reason why a line is refused; clients get a shorter message. F-35."""

MAX_HEAD_BYTES: Final = 2 * 1024 * 1024
"""Bytes of what the daemon needs to know of a large line, besides the documents of a rerank
request. It decodes them on the event loop in some 5 ms. Tools take at most half, the
request's id up to a quarter. F-35."""
