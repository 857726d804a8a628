"""The APIs that the bridge serves; another one is a line here."""

from collections.abc import Collection, Sequence
from typing import Final

from inferd.bridge.admin.api import ADMIN_API
from inferd.bridge.anthropic.api import ANTHROPIC
from inferd.bridge.chats.api import CHATS_API
from inferd.bridge.native.api import NATIVE
from inferd.bridge.ollama.api import OLLAMA
from inferd.bridge.openai.api import OPENAI
from inferd.bridge.translation.api import Api
from inferd.bridge.whisper.api import WHISPER

APIS: Final[Sequence[Api]] = (
    OPENAI,
    ANTHROPIC,
    OLLAMA,
    WHISPER,
    ADMIN_API,
    NATIVE,
    CHATS_API,
)


def api_of(
    path: str, header_names: Collection[str] = (), apis: Sequence[Api] = APIS
) -> Api:
    """Return the API in whose form a request is told of models and of failures.

    It is the one whose own header the request has, else that of the longest prefix.
    """
    for api in apis:
        if api.own_header in header_names:
            return api
    found = [
        (len(prefix), -number)
        for number, api in enumerate(apis)
        for prefix in api.prefixes
        if path.startswith(prefix)
    ]
    return apis[-max(found, default=(0, 0))[1]]
