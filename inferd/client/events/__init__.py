"""Conversations that are told as events, to one callback.

A ``Session`` keeps a conversation, has it answered, and calls back with each part: text, code,
reasoning, calls of tools, statistics and the end. A callback that returns ``False`` ends the
answer. Where the context is full, ``ContextFullError`` says which messages could go; the caller
takes them out, and nothing here does it by itself. The names are those of a contract, which
``docs/python-callbacks.md`` maps to tests.
"""

from inferd.client.events.callback import CallbackEvent, EventCallback
from inferd.client.events.response import (
    ContextFullError,
    Response,
    ResponseCode,
    SessionToolCall,
)
from inferd.client.events.session import Session, SessionMessage

__all__ = [
    "CallbackEvent",
    "ContextFullError",
    "EventCallback",
    "Response",
    "ResponseCode",
    "Session",
    "SessionMessage",
    "SessionToolCall",
]
