import os

import pytest

from inferd.admission.control import Admission, RequestTraits
from inferd.backend.caller import Caller
from inferd.errors import QueueFullError
from inferd.limits.admission import GATEWAY_WEIGHT
from inferd.limits.server import OFFLOAD_LINE_BYTES
from tests.daemon.harness import MakeDaemon, generate, mock
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import LocalServer
from tests.fakes.streams import REQUESTS

SELF = os.getuid()
GATEWAY, USER = 70_001, Caller(70_002)
SLOW = mock(tokens=["x"] * 2000, token_delay_ms=50)


def test_a_user_waits_for_a_gateways_weight_whatever_names_it_makes_up():
    gate = Admission(max_active=1, max_queued=10)
    names = iter(range(100_000))

    def ask() -> None:
        for _ in range(100):
            ticket = next(names)
            try:
                gate.arrive(ticket, RequestTraits(Caller(GATEWAY, str(ticket))), now=0)
            except QueueFullError:
                return

    ask()
    assert not gate.arrive(-1, RequestTraits(USER), now=0)
    running, n_before = 0, 0
    while running != -1:
        ask()  # a new name for each that left
        running = gate.leave(running, now=0) or 0
        n_before += 1
    assert n_before <= GATEWAY_WEIGHT + 1


def test_one_principal_keeps_no_other_out():
    gate = Admission(max_active=1, max_queued=10)
    for ticket in range(11):
        gate.arrive(ticket, RequestTraits(Caller(GATEWAY, "flood")), now=0)
    assert not gate.arrive(-1, RequestTraits(Caller(GATEWAY, "other")), now=0)
    assert gate.leave(0, now=0) == -1


@pytest.mark.parametrize("leaf", ["infer.sock", "infer.v2.sock"])
@pytest.mark.parametrize("n_chars", [5, OFFLOAD_LINE_BYTES])
async def test_cached_prompts_are_one_principals_however_long_its_line(leaf, n_chars):
    backend = ScriptedBackend()
    server = LocalServer(backend)
    server.deps.gateways.set_uids({SELF})
    names = ("ann", "ann", "bob", None, "ann")
    with server.deps.decoders.open():
        async with server.opened(), server.connect(leaf) as client:
            for name in names:
                await client.send(REQUESTS[leaf](text="x" * n_chars, principal=name))
                await client.answer()
    ann, again, bob, nobody, later = (each.owner for each in backend.jobs)
    assert ann == again == later
    assert len({ann, bob, nobody, SELF}) == 4


@pytest.mark.slow
def test_a_daemon_takes_names_from_its_gateways_alone(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    [refusal] = daemon.ask(id="a", principal="ann")
    assert (refusal["id"], refusal["code"]) == ("a", "permission_denied")
    assert daemon.logged(req_id="a")[0].get("principal") is None
    daemon.config_file.write_text(
        f"[access]\ngateways = {{ uids = [{SELF}] }}\n" + daemon.config_file.read_text()
    )
    with daemon.admin() as admin:
        reply = admin.order("reload")
    assert reply["applied"] == ["access.gateways"]
    assert daemon.ask(id="b", principal="ann")[-1]["type"] == "done"
    [line] = daemon.logged(req_id="b")
    assert (line["principal"], line["peer_uid"]) == ("ann", SELF)


@pytest.mark.slow
def test_a_cancel_ends_what_was_asked_for_one_principal(make_daemon: MakeDaemon):
    gateways = {"uids": [SELF]}
    config = {"backend": [SLOW], "access": {"gateways": gateways}}
    daemon = make_daemon(config).start()
    clients = {name: daemon.connect() for name in ("ann", "bob")}
    for name, client in clients.items():
        client.send(generate(id="same", principal=name))
        client.frame()
    with daemon.admin() as admin:
        listed = admin.order("requests")["requests"]
        assert [each["principal"] for each in listed] == ["ann", "bob"]
        reply = admin.order("cancel", id="same", principal="ann")
    assert reply["cancelled"] == 1
    assert clients["ann"].frames()[-1]["stop_reason"] == "cancelled"
    clients["bob"].send({"type": "cancel", "id": "same", "principal": "ann"})
    clients["bob"].send({"type": "cancel", "id": "same", "principal": "bob"})
    assert clients["bob"].frames()[-1]["stop_reason"] == "cancelled"
