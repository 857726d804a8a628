import os

import pytest
import trio

from inferd.bridge.identity.caller import Callers, HttpPeer
from inferd.bridge.identity.token import TokenRecord, make_token
from inferd.bridge.identity.token_file import ApiTokens, changing_tokens
from inferd.bridge.translation.failures import BridgeError, Reason

GUESSING_S = 60


async def test_a_guesser_gets_one_try_a_second_and_a_holder_is_not_kept_waiting(
    tmp_path, autojump_clock
):
    made, token_id, digest = make_token(os.urandom(38))
    with changing_tokens(tmp_path / "tokens") as tokens:
        tokens.append(TokenRecord(id=token_id, name="ada", sha256=digest))
    callers = Callers(ApiTokens(tmp_path / "tokens"), own_uid=0)
    guess = made[:-1] + ("0" if made[-1] != "0" else "1")
    n_examined = 0
    while trio.current_time() < GUESSING_S:
        with pytest.raises(BridgeError) as caught:
            callers.identify(guess, HttpPeer(uid=1001))
        n_examined += caught.value.reason is Reason.UNAUTHENTICATED
        assert callers.identify(made, HttpPeer(uid=1002)).principal == "ada"
        await trio.sleep(0.1)
    assert n_examined <= 5 + GUESSING_S
