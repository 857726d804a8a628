"""Irreversible restrictions of a process: system calls, files, privileges.

A process that serves clients lists what it needs and restricts itself before it reads a
byte of theirs. Features that the kernel lacks are skipped and reported.
"""
