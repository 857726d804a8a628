"""Somebody with a token asks for what is another's, by all operations there are."""

import inspect

import pytest

from inferd.bridge.identity.caller import Callers, HttpPeer
from inferd.bridge.identity.token import SCOPES
from inferd.bridge.identity.token_file import ApiTokens
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.chats.failures import ChatError, ChatFault
from inferd.chats.records import KeptChat, KeptMessage
from inferd.chats.storage import attachments, chats, decisions, messages
from inferd.chats.storage.database import ChatDatabase, place_of_database
from tests.unit.bridge.admin.test_admin import Manager

LIMITS = messages.MessageLimits(n_messages=9, n_chars=99, n_pending=9)
GIVEN = {
    "chat_id": "a" * 32,
    "message_id": "b" * 32,
    "attachment_id": "c" * 32,
    "ids": ["c" * 32],
    "files": {},
    "call_id": "call1",
    "is_allowed": True,
    "n_most": 10,
    "changes": {"title": "mine"},
    "now_us": 0,
    "limits": LIMITS,
}


def test_no_operation_on_a_chat_serves_another_owner(tmp_path):
    database = ChatDatabase(place_of_database(None, tmp_path))
    chat = KeptChat(id="a" * 32, owner="ada", created_us=0, modified_us=0)
    message = KeptMessage(
        id="b" * 32,
        chat_id=chat.id,
        parent_id=None,
        role="prompter",
        state="manual",
        created_us=0,
        text="secret",
    )
    database.run(lambda each: chats.create_chat(each, chat, 1))
    database.run(lambda each: messages.add_message(each, "ada", message, LIMITS))
    tried = []
    for module in (attachments, chats, decisions, messages):
        for name, operation in inspect.getmembers(module, inspect.isfunction):
            wanted = inspect.signature(operation).parameters
            is_own = operation.__module__ == module.__name__
            if not is_own or not {"owner", "connection"} <= wanted.keys():
                continue
            if "chat_id" not in wanted and "message" not in wanted:
                continue
            if name.startswith("_"):
                continue
            given = {**GIVEN, "message": message, "owner": "eve"}
            chosen = {key: given[key] for key in wanted if key in given}
            with pytest.raises(ChatError) as caught:
                database.run(lambda each: operation(each, **chosen))  # noqa: B023
            assert caught.value.fault is ChatFault.NO_CHAT
            tried.append(name)
    assert len(tried) >= 11
    database.close()


async def test_who_signed_in_by_a_name_is_no_holder_of_a_token_of_that_name(tmp_path):
    callers = Callers(ApiTokens(tmp_path / "tokens.json"), own_uid=1)
    token = callers.sign_in("ada")
    caller = callers.identify(token, HttpPeer(uid=2))
    assert (caller.principal, caller.scopes) == ("debug:ada", ("inference",))
    with pytest.raises(BridgeError) as caught:
        callers.identify(token[:-1] + "x", HttpPeer(uid=2))
    assert caught.value.reason is Reason.UNAUTHENTICATED


async def test_chats_of_all_are_read_by_a_scope_that_nobody_has_unasked(
    tmp_path, autojump_clock
):
    manager = Manager(tmp_path)
    all_but_that = manager.token("eve", scopes=SCOPES)
    for path in ("/owners/ada/chats", f"/owners/ada/chats/{'a' * 32}"):
        for key in ("", all_but_that):  # the bridge's own user, and each other scope
            refused = await manager.call("GET", path, key=key)
            assert (refused.status, "scope chats" in refused.error["message"]) == (
                403,
                True,
            )
    key = manager.token("root", scopes=("chats",))
    assert (await manager.call("GET", "/chats", key=key)).status == 403
    for method in ("POST", "PUT", "DELETE"):
        told = await manager.call(method, "/owners/ada/chats", key=key)
        assert told.status == 405
