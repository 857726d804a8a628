import os
from contextlib import AsyncExitStack

from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked as settled

from inferd.backend.caller import Caller
from tests.cases import each_case
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.serving import LocalServer
from tests.fakes.streams import REQUESTS, FrameClient, cancel, generate

SELF = os.getuid()


@each_case("leaf", sorted(REQUESTS))
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


@each_case("leaf", sorted(REQUESTS))
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


async def test_answers_that_one_principal_does_not_read_cost_no_other_its_own(
    autojump_clock,
):
    large = Script(tokens=("x" * 1_000_000,))  # more than a socket holds
    server = LocalServer(ScriptedBackend(large, large, large))
    unread = server.deps.output_quota
    server.deps.gateways.set_uids({SELF})
    clients: list[FrameClient] = []
    async with server.opened(), AsyncExitStack() as stack:
        for name in ("ann", "bob", "bob"):
            clients.append(await stack.enter_async_context(server.connect()))
            await clients[-1].send(generate("a", principal=name))
            await settled()
            if name == "ann":
                unread.max_bytes = 5 * unread.n_bytes // 2  # so three are too many
        assert server.n_served == 2
        for client in (clients[0], clients[2]):
            assert (await client.answer())[-1]["type"] == "done"
