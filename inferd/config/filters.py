"""The filter of texts: the table ``[chats.filter]``, and its bounds."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from inferd.config.tools import ConfinedSettings

FILTER_S: Final = 10.0
"""Seconds that a program may take for one text, its start included, by default."""

MAX_FILTER_BYTES: Final = 64 * 1024
"""Bytes that it may say: a verdict has some hundred. F-67."""

MAX_FILTERS: Final = 4
"""Processes of it at once; one user has all but one at most. F-67."""


class FilterSettings(
    ConfinedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A program that may refuse or mark texts."""

    prompts: bool = True
    """Whether it reads prompts, with the instructions of the chat."""
    answers: bool = False
    """Whether it reads answers, which are held back until it has spoken."""
    on_failure: Literal["refuse", "pass"] = "refuse"
    """What becomes of a text that it says nothing of: ``refuse`` fails the answer, ``pass`` goes
    on and says so."""
    limit_s: Annotated[float, Meta(gt=0, le=600)] = FILTER_S
    """Seconds for one text."""
