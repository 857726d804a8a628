"""The models of a daemon, from sockets that follow a script."""

from typing import Any

import pytest
import trio

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.upstream.models import list_models, offered_models
from inferd.surfaces import EMBED, RERANK, V2
from inferd.wire.offered_facts import OfferedFacts
from tests.unit.bridge.upstream.test_daemon import listening, says, waits

CHAT = {"backend": "chat", "aliases": ["fast"], "state": "ready"}


def facts(name: str, **more: Any) -> OfferedFacts:
    return OfferedFacts(backend=name, aliases=[], state="ready", **more)


async def test_one_line_a_socket_tells_of_all_models_and_missing_sockets_of_none(
    short_dir,
):
    asked: list[Any] = []

    async def tell(stream: trio.SocketStream, line: dict[str, Any]) -> None:
        asked.append(line)
        model = {**CHAT, "generate": True, "later_field": 7}
        await says({"type": "models", "id": line["id"], "models": [model]})(stream, {})

    with pytest.raises(BridgeError) as caught:
        await list_models(short_dir, None)
    assert caught.value.reason is Reason.UNAVAILABLE
    async with listening(short_dir, "infer.v2.sock", tell):
        models = await list_models(short_dir, "ada")
    assert [(each.name, each.uses) for each in models] == [
        ("chat", ("generate",)),
        ("fast", ("generate",)),
    ]
    [line] = [{name: line[name] for name in ("type", "principal")} for line in asked]
    assert line == {"type": "describe", "principal": "ada"}


async def test_a_socket_that_never_answers_is_a_daemon_that_does_not(
    short_dir, autojump_clock
):
    async def tell(stream: trio.SocketStream, line: dict[str, Any]) -> None:
        await says({"type": "models", "id": line["id"], "models": []})(stream, {})

    async with (
        listening(short_dir, "infer.v2.sock", tell),
        listening(short_dir, "infer.embed.sock", waits),
    ):
        with pytest.raises(BridgeError, match="not running"):
            await list_models(short_dir, None)


def test_a_model_of_several_sockets_is_one_and_those_of_the_store_come_last():
    unread = facts("stored", is_unread=True)
    models = offered_models(
        {
            RERANK: [unread],
            V2: [facts("ears", transcribe=True), facts("a", generate=True), unread],
            EMBED: [facts("a", generate=True, embed=True), facts("e", embed=True)],
        }
    )
    assert [(each.name, each.uses) for each in models] == [
        ("ears", ("transcribe",)),
        ("a", ("generate", "embed")),
        ("e", ("embed",)),
        ("stored", ("generate", "transcribe", "rerank")),
    ]
