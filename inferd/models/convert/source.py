"""What the readers of source files have in common."""


class SourceError(Exception):
    """A source file cannot be read; the message has its name and the reason."""
