"""The record of a bridge that keeps conversations."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from inferd.config.kinds.inferd import InferdSettings
from inferd.worker.remote.api import Chat, ErrorReader, RemoteApi
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.kept_chats.answer import (
    ChatEventReader,
    chat_error_in,
    chat_error_of_status,
)
from inferd.worker.remote.kept_chats.places import ChatPlaces
from inferd.worker.remote.kept_chats.request import ChatRequests


def kept_chats(api: RemoteApi[InferdSettings]) -> RemoteApi[InferdSettings]:
    """Return the record of a daemon whose bridge keeps what was said before.

    Args:
        api: the same daemon, asked for all that is no conversation.
    """

    def of_status(
        status: int, headers: Mapping[str, str], body: bytes, now: float
    ) -> RemoteError:
        told = chat_error_of_status(status, headers, body, now)
        return told or api.errors.of_status(status, headers, body, now)

    def of_answer(data: bytes) -> RemoteError:
        return chat_error_in(data) or api.errors.of_answer(data)

    places = ChatPlaces()
    chat = Chat(
        write=ChatRequests(places).write, make_reader=partial(ChatEventReader, places)
    )
    errors = ErrorReader(of_status, of_answer)
    return replace(api, chat=chat, counting=None, errors=errors)
