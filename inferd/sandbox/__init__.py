"""Irreversible restrictions of a process: system calls, files, privileges.

A process that serves clients lists what it needs and restricts itself before it reads a
byte of theirs. Features that the kernel lacks are skipped and reported.

This is the mechanism alone. The lists are with the processes: those of workers in
``worker.sandbox``, that of the line decoder in ``line_decoder.sandbox``.
"""
