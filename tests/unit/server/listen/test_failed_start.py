import json
import socket

import pytest
import trio

from inferd.limits.server import FAILED_START_S
from inferd.server.identity.access import Access, Rule
from inferd.server.listen.failed_start import refuse_clients, without_directories
from inferd.server.listen.listeners import Listeners
from inferd.server.telemetry.metrics import Metrics
from tests.cases import each_case


@pytest.fixture
def inherited(short_dir):
    sockets = {}
    for leaf in ("infer.sock", "admin.sock"):
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(f"{short_dir}/{leaf}")
        sock.listen()
        sock.setblocking(False)
        sockets[leaf] = sock
    yield sockets
    for sock in sockets.values():
        sock.close()


async def told(short_dir, inherited, leaf, access=None, reason="no such file"):
    """Connect before the refusals begin, and read what comes."""
    client = await trio.open_unix_socket(f"{short_dir}/{leaf}")
    await client.send_all(b'{"id":"a"}\n')
    async with client, trio.open_nursery() as nursery:
        listeners = Listeners(short_dir, None, inherited)
        nursery.start_soon(
            lambda: refuse_clients(
                listeners, reason, Metrics(), access=access or Access()
            )
        )
        await client.send_eof()
        with trio.fail_after(60):
            received = b"".join([part async for part in client])
    return json.loads(received)


async def test_a_client_that_waits_is_told_why(short_dir, inherited, autojump_clock):
    before = trio.current_time()
    frame = await told(short_dir, inherited, "infer.sock")
    assert (frame["id"], frame["code"]) == ("", "backend_unavailable")
    assert frame["message"] == "the daemon did not start: no such file"
    assert trio.current_time() - before == pytest.approx(FAILED_START_S)


async def test_an_operator_is_told_why(short_dir, inherited, autojump_clock):
    reply = await told(short_dir, inherited, "admin.sock")
    assert (reply["type"], reply["ok"]) == ("reply", False)
    assert reply["error"] == "the daemon did not start: no such file"


async def test_others_are_told_that_they_may_not_ask(
    short_dir, inherited, autojump_clock, monkeypatch
):
    monkeypatch.setattr("inferd.server.identity.access.is_operator", lambda _: False)
    access = Access({"infer.sock": Rule()})
    frame = await told(short_dir, inherited, "infer.sock", access)
    assert frame["code"] == "permission_denied"
    assert "no such file" not in frame["message"]


async def test_a_long_reason_fits_in_what_a_client_gets(
    short_dir, inherited, autojump_clock
):
    frame = await told(short_dir, inherited, "infer.sock", reason="x" * 1_000_000)
    assert len(frame["message"]) < 1100
    assert frame["message"].endswith("x…")


async def test_without_inherited_sockets_it_ends_at_once(short_dir, autojump_clock):
    before = trio.current_time()
    await refuse_clients(Listeners(short_dir, None), "x", Metrics(), access=Access())
    assert trio.current_time() == before


@each_case(
    ("reason", "told"),
    [
        ("/etc/inferd/a.toml: no such key", "a.toml: no such key"),
        ("model = '/srv/m.gguf': missing", "model = 'm.gguf': missing"),
        ("not found: /srv/my models/m.gguf", "not found: my m.gguf"),
        ("backend a: killed by SIGKILL", "backend a: killed by SIGKILL"),
    ],
)
def test_a_reason_for_clients_names_files_and_not_where_they_are(reason, told):
    assert without_directories(reason) == told


async def test_clients_read_no_directory(short_dir, inherited, autojump_clock):
    reason = "/srv/models/m.gguf is missing"
    frame = await told(short_dir, inherited, "infer.sock", reason=reason)
    assert frame["message"] == "the daemon did not start: m.gguf is missing"


async def test_operators_read_the_whole_reason(short_dir, inherited, autojump_clock):
    reason = "/srv/models/m.gguf is missing"
    reply = await told(short_dir, inherited, "admin.sock", reason=reason)
    assert reply["error"] == f"the daemon did not start: {reason}"
