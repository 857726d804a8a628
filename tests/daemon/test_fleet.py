"""Real bridges behind a real smg and a real haproxy, and the commands that look after them."""

import json
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import httpx2
import pytest

from inferd.fleet.entry import haproxy_config
from inferd.fleet.file import Fleet, FleetMember, FleetSettings
from tests.daemon.fleet import (
    SMG_S,
    BridgeFleet,
    add_token,
    chat,
    fleet_of,
    free_port,
    head,
)
from tests.daemon.harness import PATIENCE_S, eventually
from tests.documents.pages import commands
from tests.fakes.hub import make_certificate
from tests.fakes.remote_engine import RemoteEngine, sends, serving, status

pytestmark = [pytest.mark.slow, pytest.mark.short_version]
N_MEMBERS = 3
N_USERS = 6
N_TURNS = 4


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with fleet_of(tmp_path_factory.mktemp("fleet"), N_MEMBERS) as made:
        yield made


def ask(fleet: BridgeFleet, token: str, *texts: str) -> httpx2.Response:
    url = f"{fleet.address}/v1/chat/completions"
    return httpx2.post(url, json=chat(*texts), headers=head(token), timeout=30)


def served(fleet: BridgeFleet, principal: str) -> list[int]:
    """Count the answers that each member has given to a principal."""
    return [
        [line.get("principal") for line in bridge.logged("http_request.done")].count(
            principal
        )
        for bridge in fleet.bridges
    ]


def turns(fleet: BridgeFleet, token: str, name: str) -> None:
    """Have a conversation, each turn with all that was said before."""
    texts = [f"{name}: {'a long beginning ' * 20}"]
    for turn in range(N_TURNS):
        assert ask(fleet, token, *texts).json()["choices"], turn
        texts += ["hi", f"and then, {turn}?"]


def test_the_commands_tell_how_members_are_and_what_is_wrong(fleet, tmp_path):
    assert fleet.run("check").returncode == 0
    states = json.loads(fleet.run("status", "--json").stdout)["members"]
    assert [state["condition"] for state in states] == ["ready"] * N_MEMBERS
    assert {state["running"] for state in states} == {0}
    assert {*map(tuple, (state["models"] for state in states))} == {("mock",)}
    other = tmp_path / "fleet.toml"
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text(fleet.discovery[:-1] + "x")
    text = fleet.file.read_text()
    other.write_text(text.replace(fleet.bridges[0].address, "http://127.0.0.1:1"))
    fleet.file, kept = other, fleet.file
    try:
        done = fleet.run("check")
        assert done.returncode == 1
        assert "m0: unreachable" in done.stderr
        assert "m1: refused, /server_info: status 401" in done.stderr
        assert fleet.run("drain", "m1").stderr.startswith("error: no other member")
    finally:
        fleet.file = kept


def test_the_commands_of_the_page_work(fleet):
    lines = commands("docs/fleet.md")
    words = [each.replace("east", "m0").split() for each in lines]
    typed = [each[2:] for each in words if each[:2] == ["inferd", "fleet"]]
    assert typed[:2] == [["serve"], ["write"]]  # smg and haproxy are started below
    for each in typed[1:]:
        done = fleet.run(*each)
        assert done.returncode == 0, done.stderr


def test_smg_keeps_conversations_in_place_and_callers_apart(fleet):
    names = [f"user{index}" for index in range(N_USERS)]
    tokens = [add_token(fleet.tokens, name) for name in names]
    with fleet.smg():
        with ThreadPoolExecutor(N_USERS) as pool:
            list(pool.map(lambda *each: turns(fleet, *each), tokens, names))
        for name in names:  # a token is a principal at the bridge, so shares hold there
            assert eventually(lambda: sum(served(fleet, name)) == N_TURNS)  # noqa: B023
            assert max(served(fleet, name)) == N_TURNS
        assert len({served(fleet, name).index(N_TURNS) for name in names}) > 1
        # nobody is let in by the token of the entry, which is not even secret
        assert fleet.discovery in httpx2.get(f"{fleet.address}/engine_metrics").text
        assert ask(fleet, "", "hello").status_code == 403
        assert ask(fleet, fleet.discovery, "hello").status_code == 403
        for path in ("workers", "get_loads"):
            assert httpx2.get(f"{fleet.address}/{path}").status_code == 401
        new = {"url": "http://127.0.0.1:1"}
        assert httpx2.post(f"{fleet.address}/workers", json=new).status_code == 401


def test_smg_sends_nothing_to_a_member_that_is_drained_until_it_is_resumed(fleet):
    ada = add_token(fleet.tokens, "ada")
    with fleet.smg():
        done = fleet.run("drain", "m0", "--timeout", "30")
        assert done.returncode == 0, done.stderr
        for index in range(12):
            assert ask(fleet, ada, f"{index} is new").is_success
        assert eventually(lambda: sum(served(fleet, "ada")) == 12)
        assert served(fleet, "ada")[0] == 0
        assert "m0: ready, drained" in fleet.run("status").stdout
        assert fleet.run("resume", "m0").returncode == 0
        number = count()
        assert eventually(
            lambda: (
                ask(fleet, ada, f"{next(number)} is newer").is_success
                and served(fleet, "ada")[0] > 0
            ),
            within_s=SMG_S,
        )


def test_haproxy_takes_its_file_and_keeps_a_conversation_on_one_member(fleet):
    eve = add_token(fleet.tokens, "eve")
    with fleet.haproxy():
        path = str(fleet.directory / "haproxy.cfg")
        assert (
            subprocess.run(["haproxy", "-c", "-f", path], check=False).returncode == 0
        )
        turns(fleet, eve, "one conversation")
        assert eventually(lambda: sorted(served(fleet, "eve")) == [0, 0, N_TURNS])
        for index in range(24):
            assert ask(fleet, eve, f"{index} is another").is_success
        assert eventually(lambda: all(served(fleet, "eve")))


def served_by_haproxy(directory: Path, host: str, member: RemoteEngine) -> int:
    """Ask the only member, of this host, through haproxy; return the status."""
    listen = f"127.0.0.1:{free_port()}"
    fleet = Fleet(
        directory / "fleet.toml",
        FleetSettings(ca_file="certificate.pem", listen=listen),
        (FleetMember("m", f"https://{host}:{member.port}"),),
        "",
    )
    file = directory / "haproxy.cfg"
    file.write_bytes(haproxy_config(fleet, ()))
    found: list[int] = []

    def answers() -> bool:
        try:
            answer = httpx2.post(f"http://{listen}", json={}, headers=head("inferd-1"))
        except httpx2.HTTPError:
            return False
        found.append(answer.status_code)
        return True

    with subprocess.Popen(["haproxy", "-db", "-f", file]) as process:
        try:
            assert eventually(answers)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
    return found[0]


@pytest.mark.parametrize(
    ("host", "names", "wanted"),
    [
        ("localhost", "DNS:localhost", 200),
        ("localhost", "DNS:other.example", 503),
        ("127.0.0.1", "DNS:other.example", 503),
    ],
)
def test_haproxy_sends_no_token_to_a_member_with_the_certificate_of_another_host(
    tmp_path, host, names, wanted
):
    make_certificate(tmp_path / "key.pem", tmp_path / "certificate.pem", names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    with serving(context) as member:
        member.script = sends(status(200, {}))
        assert served_by_haproxy(tmp_path, host, member) == wanted
        seen = b"".join(asked for asked, _ in member.requests)
        assert (b"inferd-1" in seen) is (wanted == 200)


def test_a_daemon_asks_a_fleet_as_a_remote_of_kind_openai(fleet, make_daemon):
    token = add_token(fleet.tokens, "another-daemon")
    far = {
        "name": "far",
        "kind": "openai",
        "base_url": fleet.address,
        "model": "mock",
        "api_key_env": "FAR_KEY",
    }
    with fleet.smg():
        daemon = make_daemon({"backend": [far]}, environ={"FAR_KEY": token}).start()
        *tokens, done = daemon.ask(model="far", max_tokens=20)
        assert (done["type"], done["backend"]) == ("done", "far")
        assert "".join(each.get("content", "") for each in tokens) == "hi"
        assert eventually(lambda: sum(served(fleet, "another-daemon")) > 0)
