import os

import pytest
from structlog.testing import capture_logs

from inferd.backend.caller import Caller
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.serving import LocalServer
from tests.fakes.streams import REQUESTS, cancel, generate

SELF = os.getuid()


@pytest.mark.parametrize("leaf", sorted(REQUESTS))
async def test_a_principal_of_no_gateway_is_refused_and_the_connection_stays(
    leaf, autojump_clock
):
    line = REQUESTS[leaf]
    async with LocalServer(ScriptedBackend()).opened() as server:
        async with server.connect(leaf) as client:
            await client.send(line("a", principal="ann") + line("b", principal=None))
            [refusal] = await client.answer()
            *_, answer = await client.answer()
    assert (refusal["id"], refusal["code"]) == ("a", "permission_denied")
    assert (answer["id"], answer["type"] != "error") == ("b", True)


@pytest.mark.parametrize("leaf", sorted(REQUESTS))
async def test_a_gateways_request_is_its_principals(leaf, autojump_clock):
    backend, server, line = ScriptedBackend(), None, REQUESTS[leaf]
    server = LocalServer(backend)
    server.deps.gateways.set_uids({SELF})
    seen: list[Caller] = []
    admitted = server.queue.admitted

    def note(traits, **options):
        seen.append(traits.caller)
        return admitted(traits, **options)

    server.queue.admitted = note  # type: ignore[method-assign]
    async with server.opened(), server.connect(leaf) as client:
        with capture_logs() as logged:
            for name in ("", "ann", None):
                await client.send(line(str(name), principal=name))
                await client.answer()
    assert seen == [Caller(SELF, "ann"), Caller(SELF)]
    ended = [
        (each.get("code"), each.get("principal")) for each in logged if "req_id" in each
    ]
    assert ended == [("invalid_request", None), (None, "ann"), (None, None)]


async def test_a_gateways_cancel_reaches_one_principals_request_of_an_id(
    autojump_clock,
):
    server = LocalServer(ScriptedBackend(Script(token_delay_s=5)))
    server.deps.gateways.set_uids({SELF})
    async with server.opened(), server.connect() as client:
        await client.send(
            generate("a", principal="ann") + generate("a", principal="bob")
        )
        await client.send(cancel("a") + cancel("a", principal="bob"))
        endings = [(await client.answer())[-1]["stop_reason"] for _ in range(2)]
    assert endings == ["end", "cancelled"]
