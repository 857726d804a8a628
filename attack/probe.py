"""An attack by trying something once: it works or it does not."""

from collections.abc import Callable
from dataclasses import dataclass

from attack.scene import Scene


@dataclass(frozen=True, kw_only=True)
class Probe:
    """An attack that is no load.

    Args:
        name: of the attack.
        kind: the module of its kind.
        about: what it does, in some words.
        try_in: does it.
    """

    name: str
    kind: str
    about: str
    try_in: Callable[[Scene], None]
