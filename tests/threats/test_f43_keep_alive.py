"""One user decides for all how long a model stays loaded."""

import trio

from inferd.limits.residency import KEEP_ALIVE_MAX_S, KEPT_USERS
from inferd.residency.model import Model
from inferd.residency.residency import ModelState
from tests.unit.server.loading.test_loader import LOAD_S, Home

ANNA, BERT = 70_001, 70_002
AT_ONCE = 1e-3
"""The shortest time that a request can reasonably ask for; 0 is as long as allowed."""


async def test_a_user_has_no_model_unloaded_that_another_uses(autojump_clock):
    async with Home(keep_alive_s=300).opened() as home:
        await home.ask("a", uid=ANNA)
        for _ in range(50):
            await home.ask("a", uid=BERT, keep_alive_s=AT_ONCE)
            await trio.sleep(1)
            assert home.loader.state("a") is ModelState.READY
        asked_at = trio.current_time()
        assert await home.ask("a", uid=ANNA) == asked_at
        assert home.engines["a"].n_loads == 1


async def test_a_user_keeps_no_model_in_memory_against_others(autojump_clock):
    async with Home(keep_alive_s=0).opened() as home:
        for user in range(1, 20):
            await home.ask("a", uid=user, keep_alive_s=KEEP_ALIVE_MAX_S)
        began_at = trio.current_time()
        assert await home.ask("b", uid=ANNA) <= began_at + 2 * LOAD_S


async def test_a_user_keeps_no_model_beyond_what_the_operator_allows(autojump_clock):
    async with Home(keep_alive_s=7).opened() as home:
        await home.ask("a", uid=BERT, keep_alive_s=KEEP_ALIVE_MAX_S)
        await trio.sleep(7 + LOAD_S)
        assert home.loader.state("a") is ModelState.UNLOADED


def test_users_who_are_many_take_no_memory_and_shorten_nothing():
    model = Model(name="a", n_bytes=1, keep_alive_s=300, is_pinned=False)
    model.keep_for(ANNA, None, 0)
    for user in range(10 * KEPT_USERS):
        model.keep_for(user, AT_ONCE, 1)
    assert len(model.kept_until) == KEPT_USERS
    assert model.idle_until == 300
