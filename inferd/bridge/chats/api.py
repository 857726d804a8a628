"""The record of the routes of chats."""

from typing import Final

from inferd.bridge.chats import requests as asked
from inferd.bridge.chats.documents import (
    BothDocument,
    ChatListDocument,
    DebugTokens,
    HitsDocument,
    ModelConfigInfo,
    ToolServerInfo,
)
from inferd.bridge.chats.events import ChatEventStream
from inferd.bridge.chats.failures import ChatFailure, chat_failure_body
from inferd.bridge.translation.api import Api, HostedOperation
from inferd.bridge.translation.failures import Reason
from inferd.bridge.translation.query import NO_QUERY
from inferd.chats.documents import ChatDocument, MessageDocument, WholeChatDocument

_CHAT: Final = "/chats/{chat_id}"
_MESSAGE: Final = "/chats/{chat_id}/messages/{message_id}"
_OF_CHATS: Final = (
    Reason.UNKNOWN_FIELD,
    Reason.CHATS_UNAVAILABLE,
    Reason.NOT_CONFIGURED,
)
_OF_ONE: Final = (*_OF_CHATS, Reason.CHAT_NOT_FOUND)
_OF_MESSAGES: Final = (*_OF_ONE, Reason.MESSAGE_NOT_FOUND)
_OF_NEW: Final = (
    *_OF_MESSAGES,
    Reason.UNSUPPORTED,
    Reason.CHAT_CONFLICT,
    Reason.CHAT_LIMIT,
)

CHATS_API: Final = Api(
    name="chats",
    prefixes=("/chats", "/auth/", "/configs/", "/owners/"),
    query=NO_QUERY,
    error_body=chat_failure_body,
    failure=ChatFailure,
    parts=(asked.SAMPLING, asked.IMPORTED_MESSAGE),
    hosted=(
        HostedOperation(
            method="GET",
            path="/configs/model_configs",
            action="list_models",
            summary="List the models that answers may be asked of",
            answer=list[ModelConfigInfo],
        ),
        HostedOperation(
            method="GET",
            path="/owners/{owner}/chats",
            action="list_chats",
            summary="List somebody's chats, for those who may read them all",
            query=asked.LIST_QUERY,
            answer=ChatListDocument,
            reasons=_OF_CHATS,
            scope="chats",
        ),
        HostedOperation(
            method="GET",
            path="/owners/{owner}/chats/{chat_id}",
            action="read_chat",
            summary="Return somebody's chat with all its messages",
            answer=WholeChatDocument,
            reasons=_OF_ONE,
            scope="chats",
        ),
        HostedOperation(
            method="GET",
            path="/owners/{owner}/chats/{chat_id}/attachments/{attachment_id}",
            action="read_attachment",
            summary="Return a picture or a recording of somebody's message",
            answer=bytes,
            reasons=(*_OF_ONE, Reason.ATTACHMENT_NOT_FOUND),
            scope="chats",
        ),
        HostedOperation(
            method="GET",
            path="/configs/tool_servers",
            action="list_tool_servers",
            summary="List the tools that answers may call",
            answer=list[ToolServerInfo],
        ),
        HostedOperation(
            method="GET",
            path="/chats",
            action="list_chats",
            summary="List the caller's chats, the latest change first",
            query=asked.LIST_QUERY,
            answer=ChatListDocument,
            reasons=_OF_CHATS,
        ),
        HostedOperation(
            method="POST",
            path="/chats",
            action="create_chat",
            summary="Begin a chat",
            table=asked.CREATE_CHAT,
            body=asked.CreateChat,
            answer=ChatDocument,
            reasons=(*_OF_CHATS, Reason.CHAT_LIMIT),
        ),
        HostedOperation(
            method="GET",
            path="/chats/search",
            action="search",
            summary="Find the caller's messages that have some words",
            query=asked.SEARCH_QUERY,
            answer=HitsDocument,
            reasons=_OF_CHATS,
        ),
        HostedOperation(
            method="POST",
            path="/chats/import",
            action="import_chat",
            summary="Store a chat that was exported as JSON",
            table=asked.IMPORT,
            body=asked.ImportChat,
            answer=ChatDocument,
            reasons=(*_OF_CHATS, Reason.CHAT_LIMIT, Reason.CHAT_CONFLICT),
        ),
        HostedOperation(
            method="GET",
            path=_CHAT,
            action="read_chat",
            summary="Return a chat with its messages",
            answer=WholeChatDocument,
            reasons=_OF_ONE,
        ),
        HostedOperation(
            method="PUT",
            path=_CHAT,
            action="change_chat",
            summary="Rename, hide or set up a chat",
            table=asked.CHANGE_CHAT,
            body=asked.ChangeChat,
            answer=ChatDocument,
            reasons=_OF_ONE,
        ),
        HostedOperation(
            method="DELETE",
            path=_CHAT,
            action="delete_chat",
            summary="Delete a chat for good",
            reasons=_OF_ONE,
        ),
        HostedOperation(
            method="GET",
            path=f"{_CHAT}/export",
            action="export_chat",
            summary="Return a chat as a file",
            query=asked.EXPORT_QUERY,
            answer=WholeChatDocument,
            texts=("text/markdown",),
            reasons=_OF_ONE,
        ),
        HostedOperation(
            method="GET",
            path=f"{_CHAT}/attachments/{{attachment_id}}",
            action="read_attachment",
            summary="Return a picture or a recording of a message",
            answer=bytes,
            reasons=(*_OF_ONE, Reason.ATTACHMENT_NOT_FOUND),
        ),
        HostedOperation(
            method="POST",
            path=f"{_CHAT}/prompter_message",
            action="create_prompt",
            summary="Add a message of the person",
            table=asked.CREATE_PROMPT,
            body=asked.CreatePrompt,
            answer=MessageDocument,
            reasons=_OF_NEW,
        ),
        HostedOperation(
            method="POST",
            path=f"{_CHAT}/assistant_message",
            action="create_answer",
            summary="Ask for an answer, which is generated even if nobody waits for it",
            table=asked.CREATE_ANSWER,
            body=asked.CreateAnswer,
            answer=MessageDocument,
            reasons=_OF_NEW,
        ),
        HostedOperation(
            method="POST",
            path=f"{_CHAT}/messages",
            action="create_both",
            summary="Add a message of the person, and ask for its answer",
            table=asked.CREATE_BOTH,
            body=asked.CreateBoth,
            answer=BothDocument,
            reasons=_OF_NEW,
        ),
        HostedOperation(
            method="GET",
            path=_MESSAGE,
            action="read_message",
            summary="Return a message",
            answer=MessageDocument,
            reasons=_OF_MESSAGES,
        ),
        HostedOperation(
            method="GET",
            path=f"{_MESSAGE}/events",
            action="follow",
            summary="Follow an answer; 204 where there is nothing to come",
            stream=ChatEventStream(),
            reasons=(*_OF_MESSAGES, Reason.CHAT_LIMIT),
        ),
        HostedOperation(
            method="POST",
            path=f"{_MESSAGE}/tool_calls/{{call_id}}",
            action="decide_call",
            summary="Allow or deny a call of a tool that waits for it",
            table=asked.DECIDE,
            body=asked.DecideCall,
            answer=MessageDocument,
            reasons=(*_OF_MESSAGES, Reason.CHAT_CONFLICT),
        ),
        HostedOperation(
            method="POST",
            path=f"{_MESSAGE}/stop",
            action="stop",
            summary="End an answer; what there is of it stays",
            table=asked.STOP,
            body=asked.Nothing,
            answer=MessageDocument,
            reasons=_OF_MESSAGES,
        ),
        HostedOperation(
            method="GET",
            path="/auth/callback/debug",
            action="sign_in",
            summary="Return a token for a name; with --development alone",
            query=asked.DEBUG_QUERY,
            answer=DebugTokens,
            reasons=(Reason.ROUTE_NOT_FOUND,),
        ),
    ),
)
