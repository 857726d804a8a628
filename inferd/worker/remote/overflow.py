"""Requests that do not fit into a remote's context, as servers say it in their words."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from inferd.ipc.worker import Overflow
from inferd.worker.remote.errors import overflow_of


class OverflowPattern(NamedTuple):
    """How a server says that a request does not fit into the context."""

    server: str
    pattern: re.Pattern[str]
    """With the groups ``n_ctx`` and ``prompt``, and perhaps ``answer``, or ``total`` for prompt
    and answer."""


def overflow_pattern(server: str, text: str) -> OverflowPattern:
    """Make a pattern, in which case does not matter."""
    return OverflowPattern(server, re.compile(text, re.IGNORECASE))


OF_A_BRIDGE: Final = (
    overflow_pattern(
        "inferd",
        r"maximum context length is (?P<n_ctx>\d+) tokens, and the prompt has "
        r"(?:at least )?(?P<prompt>\d+)",
    ),
    overflow_pattern(
        "inferd",
        r"the prompt has (?:at least )?(?P<prompt>\d+) tokens and the context (?P<n_ctx>\d+)",
    ),
)
"""Of this project's bridge, in each of its APIs: the second is what daemons say themselves."""


def find_overflow(message: str, patterns: Iterable[OverflowPattern]) -> Overflow | None:
    """Find by how much a request is too long; ``None`` if the error is another one."""
    for each in patterns:
        if found := each.pattern.search(message):
            numbers = {
                name: int(digits[:12])
                for name, digits in found.groupdict().items()
                if digits
            }
            prompt = numbers["prompt"]
            total = numbers.get("total", prompt + numbers.get("answer", 1))
            return overflow_of(prompt, total, numbers["n_ctx"])
    return None
