import json
import socket
import ssl
from pathlib import Path

import httpx2
import msgspec
import pytest
import trio

from inferd.fleet.bounds import MAX_PROBE_BYTES
from inferd.fleet.file import Fleet, FleetError, FleetMember, FleetSettings
from inferd.fleet.probe import Condition, MemberState, differences, probe_fleet
from tests.fakes.hub import make_certificate
from tests.fakes.remote_engine import serving

GOOD = {
    "/health": '{"status":"ok"}',
    "/server_info": '{"name":"inferd-bridge","version":"1","more":1}',
    "/metrics": "inferd_bridge_running 3.0\n",
    "/ready": "{}",
    "/v1/models": '{"data":[{"id":"chat"},{"id":"embed"}]}',
}
INFO = "/server_info"


def fleet_with(*hosts: str, **settings: str) -> Fleet:
    members = tuple(FleetMember(host, f"http://{host}:1") for host in hosts)
    return Fleet(
        Path("/f.toml"), msgspec.convert(settings, FleetSettings), members, "inferd-1"
    )


async def probed(answer, *hosts: str) -> list[MemberState]:
    transport = httpx2.MockTransport(answer)
    return await probe_fleet(fleet_with(*hosts), {"drained"}, transport)


async def test_a_member_is_what_its_answers_say():
    async def answer(request):
        assert request.headers["authorization"] == "Bearer inferd-1"
        path = request.url.path
        replaced = {
            "moved": (path == INFO, 302, ""),
            "refusing": (path == INFO, 401, ""),
            "starting": (path == "/ready", 503, ""),
            "other": (path == INFO, 200, '{"name":"vllm","version":"1"}'),
            "broken": (path == "/v1/models", 200, "<html>"),
            "endless": (path == "/metrics", 200, "x" * (MAX_PROBE_BYTES + 1)),
        }
        is_it, status, text = replaced.get(request.url.host, (False, 0, ""))
        if request.url.host == "gone":
            raise httpx2.ConnectError("refused")
        if is_it:
            headers = {"location": "http://elsewhere/"}
            return httpx2.Response(status, text=text, headers=headers)
        return httpx2.Response(200, text=GOOD[path])

    wanted = {
        "good": Condition.READY,
        "drained": Condition.READY,
        "moved": Condition.NOT_READY,
        "refusing": Condition.REFUSED,
        "starting": Condition.NOT_READY,
        "other": Condition.UNREACHABLE,
        "broken": Condition.UNREACHABLE,
        "endless": Condition.UNREACHABLE,
        "gone": Condition.UNREACHABLE,
    }
    states = await probed(answer, *wanted)
    assert {state.name: state.condition for state in states} == wanted
    good = states[0]
    assert (good.models, good.running, good.version) == (["chat", "embed"], 3, "1")
    assert [state.name for state in states if state.drained] == ["drained"]
    assert all(bool(state.reason) != (state.condition == "ready") for state in states)


async def test_a_member_that_says_nothing_holds_up_no_other(autojump_clock):
    async def answer(request):
        if request.url.host == "silent":
            await trio.sleep_forever()
        return httpx2.Response(200, text=GOOD[request.url.path])

    silent, good = await probed(answer, "silent", "good")
    assert silent.reason == "/health: no answer within 5 s"
    assert good.condition is Condition.READY


@pytest.mark.slow  # the authorities of the system
async def test_why_a_member_cannot_be_reached_is_told(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make_certificate(key, certificate, "DNS:other.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(context) as impostor, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and does not listen
        urls = [
            f"https://localhost:{impostor.port}",
            f"http://localhost:{deaf.getsockname()[1]}",
        ]
        members = tuple(FleetMember(f"m{i}", url) for i, url in enumerate(urls))
        settings = FleetSettings(ca_file=str(certificate))
        states = await probe_fleet(Fleet(Path("/f.toml"), settings, members, ""), ())
    assert states[0].reason == (
        "/health: its certificate is refused: "
        "Hostname mismatch, certificate is not valid for 'localhost'"
    )
    assert [state.is_gone for state in states] == [False, True]


async def test_authorities_that_cannot_be_read_are_an_error():
    with pytest.raises(FleetError, match=r"/none\.pem"):
        await probe_fleet(fleet_with("a", ca_file="none.pem"), ())


def test_members_that_differ_are_told():
    def ready(name, models, version="1"):
        fields = {"name": name, "url": "", "drained": False}
        return MemberState(
            condition=Condition.READY, models=models, version=version, **fields
        )

    assert not differences([ready("a", ["x"]), ready("b", ["x"])])
    found = differences([ready("a", ["x", "y"]), ready("b", ["x"], "2")])
    assert found == ["b has no model y, which others have", "versions differ: 1, 2"]
    assert json.dumps(found)
