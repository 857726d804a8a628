"""All attacks, in the order of their kinds."""

from collections.abc import Sequence
from typing import Final, Protocol

from attack.kinds import (
    caches,
    clients,
    identities,
    lines,
    log,
    loop,
    models,
    permits,
    sandbox,
    structures,
    terminal,
)
from attack.scene import Scene


class Attack(Protocol):
    """One of them."""

    @property
    def name(self) -> str:
        """Which one."""

    @property
    def kind(self) -> str:
        """The module of ``attack.kinds`` that it comes from."""

    @property
    def about(self) -> str:
        """What it does, in some words."""

    def try_in(self, scene: Scene) -> None:
        """Do it; the scene is told what came of it.

        Raises:
            SkippedError: this machine lacks what it takes.
        """


_KINDS: Final = (
    *(structures, permits, loop, lines, identities, sandbox),
    *(caches, clients, terminal, models, log),
)
ATTACKS: Final[Sequence[Attack]] = tuple(
    attack for kind in _KINDS for attack in kind.attacks()
)
BY_NAME: Final = {attack.name: attack for attack in ATTACKS}


def chosen(names: Sequence[str]) -> list[Attack]:
    """Give the attacks with these names, or of these kinds; all of none.

    Raises:
        KeyError: there is none; the name that is wrong.
    """
    for name in names:
        if not any(name in (each.name, each.kind) for each in ATTACKS):
            raise KeyError(name)
    return [each for each in ATTACKS if not names or {each.name, each.kind} & {*names}]
