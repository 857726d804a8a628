"""What ``inferd top`` shows of an overview, and how keys change that; pure."""

from dataclasses import dataclass, replace
from typing import Final, Literal

Part = Literal["both", "models", "users"]
Order = Literal["share", "waiting", "tokens", "name"]
ORDERS: Final[tuple[Order, ...]] = ("share", "waiting", "tokens", "name")
HELP: Final = "q quit s sort p pause u users m models"


@dataclass(frozen=True)
class View:
    """What is shown."""

    part: Part = "both"
    order: Order = "share"
    is_paused: bool = False
    has_ended: bool = False


def pressed(view: View, key: str) -> View:
    """Return the view after a key; keys without a meaning change nothing."""
    match key:
        case "q" | "Q" | "\x03" | "\x04":
            return replace(view, has_ended=True)
        case "s":
            at = ORDERS.index(view.order)
            return replace(view, order=ORDERS[(at + 1) % len(ORDERS)])
        case "p" | " ":
            return replace(view, is_paused=not view.is_paused)
        case "u" | "m":
            part: Part = "users" if key == "u" else "models"
            return replace(view, part="both" if view.part == part else part)
        case _:
            return view
