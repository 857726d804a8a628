"""Somebody stores as much as the store takes."""

import pytest

from inferd.bridge.identity.caller import Callers, HttpPeer
from inferd.bridge.identity.token_file import ApiTokens
from inferd.bridge.translation.failures import BridgeError
from inferd.chats.failures import ChatError, ChatFault
from inferd.chats.records import KeptChat, KeptMessage
from inferd.chats.storage import chats, messages
from inferd.chats.storage.database import ChatDatabase, place_of_database
from inferd.limits.bridge import DEBUG_TOKENS

LIMITS = messages.MessageLimits(n_messages=3, n_chars=40, n_pending=1)


def test_a_loop_of_one_owner_ends_at_the_bounds_and_another_goes_on(tmp_path):
    database = ChatDatabase(place_of_database(None, tmp_path))
    number = 0

    def new_id() -> str:
        nonlocal number
        number += 1
        return f"{number:032x}"

    def fill(owner: str) -> int:
        n_stored = 0
        try:
            while True:
                chat = KeptChat(id=new_id(), owner=owner, created_us=0, modified_us=0)
                database.run(lambda each: chats.create_chat(each, chat, 3))  # noqa: B023
                for _ in range(2):
                    message = KeptMessage(
                        id=new_id(),
                        chat_id=chat.id,
                        parent_id=None,
                        role="prompter",
                        state="manual",
                        created_us=0,
                        text="x" * 10,
                    )
                    database.run(
                        lambda each: messages.add_message(
                            each,
                            owner,
                            message,  # noqa: B023
                            LIMITS,
                        )
                    )
                    n_stored += 1
        except ChatError as error:
            assert error.fault is ChatFault.LIMIT  # noqa: PT017  # a loop ends by it
        return n_stored

    assert fill("eve") == LIMITS.n_chars // 10
    assert fill("eve") == 0
    assert fill("ada") == LIMITS.n_chars // 10
    database.close()


async def test_signing_in_again_and_again_forgets_the_oldest(tmp_path):
    callers = Callers(ApiTokens(tmp_path / "tokens.json"), own_uid=1)
    first = last = callers.sign_in("ada")
    for _ in range(DEBUG_TOKENS):
        last = callers.sign_in("eve")
    with pytest.raises(BridgeError):
        callers.identify(first, HttpPeer(uid=2))
    assert callers.identify(last, HttpPeer(uid=2)).principal == "debug:eve"
