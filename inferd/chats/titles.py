"""The title of a chat, from its first prompt; pure."""

from typing import Final

TITLE_CHARS: Final = 60
"""Characters of a title that is made: what a list shows of it."""


def title_of(prompt: str) -> str | None:
    """Return the first words of a prompt; ``None`` if it has no words."""
    printable = "".join(char if char.isprintable() else " " for char in prompt[:1024])
    words = " ".join(printable.split())
    if len(words) <= TITLE_CHARS:
        return words or None
    cut = words[: TITLE_CHARS - 1]
    whole, _, rest = cut.rpartition(" ")
    return f"{whole if whole and len(rest) < TITLE_CHARS // 2 else cut}…"
