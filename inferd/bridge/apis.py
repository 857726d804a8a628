"""The APIs that the bridge serves; another one is a line here."""

from collections.abc import Sequence
from typing import Final

from inferd.bridge.openai.api import OPENAI
from inferd.bridge.translation.api import Api

APIS: Final[Sequence[Api]] = (OPENAI,)


def api_of(path: str, apis: Sequence[Api] = APIS) -> Api:
    """Return the API in whose form failures at a path are told: that of the longest prefix."""
    found = [
        (len(prefix), -number)
        for number, api in enumerate(apis)
        for prefix in api.prefixes
        if path.startswith(prefix)
    ]
    return apis[-max(found, default=(0, 0))[1]]
