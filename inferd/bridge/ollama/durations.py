"""How long a model stays loaded, as Ollama writes it."""

import re
from typing import Final

from inferd.bridge.translation.failures import invalid

MAX_KEEP_ALIVE_S: Final = 2_592_000.0
"""The longest time that the daemon takes; the operator's bound is shorter in any case."""
MIN_KEEP_ALIVE_S: Final = 0.001
"""Stands for 0, which unloads at once: to the daemon, 0 is as long as configured."""
AS_CONFIGURED: Final = 0.0
_UNITS_S: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})([a-zµμ]+)")
_MAX_CHARS: Final = 64
"""Of a duration: more than all units have with all their digits that mean something."""


def keep_alive_s(given: float | str | None) -> float | None:
    """Return the daemon's ``keep_alive_s``; ``None`` for its own default.

    Args:
        given: seconds, or a duration such as ``"1h30m"``. A negative one is as long as the
            operator has configured.

    Raises:
        BridgeError: it is no duration.
    """
    if given is None or given == "":
        return None
    seconds = _seconds(given) if isinstance(given, str) else given
    if seconds < 0:
        return AS_CONFIGURED
    return min(max(seconds, MIN_KEEP_ALIVE_S), MAX_KEEP_ALIVE_S)


def is_unload(given: float | str | None) -> bool:
    """Tell whether a model is to be unloaded at once."""
    return keep_alive_s(given) == MIN_KEEP_ALIVE_S


def _seconds(text: str) -> float:
    sign = -1.0 if text.startswith("-") else 1.0
    rest = text[: _MAX_CHARS + 1]
    rest = rest[1:] if rest.startswith(("+", "-")) else rest
    if rest == "0":
        return 0.0
    total, end = 0.0, 0
    for part in _PART.finditer(rest):
        if part.start() != end or part[2] not in _UNITS_S:
            break
        total += float(part[1]) * _UNITS_S[part[2]]
        end = part.end()
    if not end or end != len(rest) or len(text) > _MAX_CHARS:
        raise invalid(
            "keep_alive", 'must be seconds, or a duration such as "5m" or "1h30m"'
        )
    return sign * total
