"""What processes give up for good: system calls, files, privileges.

A process that serves clients says what it needs in a list of its own and enters before it
reads a byte of theirs. What the kernel does not have is left out, and told.
"""
