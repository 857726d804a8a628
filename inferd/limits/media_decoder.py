"""Bounds of the processes that decode pictures and sound of the bridge's callers."""

from typing import Final

MEDIA_DECODERS: Final = 3
"""Pictures and recordings that are decoded at once, all but one of them at most of one token or
user: a picture of a camera takes 0.2 s of one core. F-52."""

MEDIA_DECODE_S: Final = 30.0
"""Seconds that one may take, and of processor time as well: an hour of sound takes some 10 of
one core. F-52."""

MAX_SOUND_S: Final = 3600
"""Seconds of one recording: 230 MB of samples, which the daemon takes by default. F-52."""

MAX_DECODED_BYTES: Final = 512 * 1024 * 1024
"""Bytes of pixels and samples that the bridge holds for the daemon, half of them at most for one
token or user: the longest recording. F-52."""

MAX_DECODED_FILES: Final = 256
"""Descriptors of such, half of them at most for one token or user, so that the bridge stays
within 1,024 open files, the usual bound of a process. F-52."""

MEDIA_MEMORY_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of address space of one decoder: libraries take 300 MB of it, and the largest picture
with transparency 13 bytes a pixel, 436 MB. F-52."""

FORK_S: Final = 30.0
"""Seconds that the process may take to fork a decoder, to import its libraries as well: on an
idle machine one."""

MAX_REPORT_BYTES: Final = 4096
"""Bytes of a message between the bridge, the process that forks and a decoder: what a pipe takes
at once. F-52."""

MAX_FAULT_CHARS: Final = 300
"""Characters of a decoder's words on what is wrong with a file. F-52."""

WRITTEN_BYTES: Final = 1024 * 1024
"""Bytes of a file that are copied for a decoder before other tasks run: in less than 1 ms."""
