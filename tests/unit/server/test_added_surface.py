"""A surface is added by one more binding, and everything that lists surfaces has it."""

import shutil
import socket
import stat
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from structlog.testing import capture_logs

from inferd import surfaces
from inferd.backend.capabilities import BackendCapabilities
from inferd.cli.connect import open_client
from inferd.cli.console import CommandError
from inferd.config.settings import AccessRule, AccessSettings, Config
from inferd.doctor.check import Verdict
from inferd.doctor.runtime import check_sockets
from inferd.limits.server import OFFLOAD_LINE_BYTES
from inferd.server.identity.access import load_access
from inferd.server.listen.activation import listen_fds
from inferd.server.services.endpoints import BINDINGS, Binding
from inferd.server.telemetry.log_format import ConsoleFormat, record_of
from inferd.service.activation import ActivationError
from inferd.wire.requests import EmbedRequest
from tests.cases import each_case
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.echo import ECHO, SOCKET, SURFACES, WITH_ECHO, echo_fields
from tests.fakes.listener import listening
from tests.fakes.serving import held, make_daemon, running
from tests.fakes.streams import Frame, generate, to_line
from tools.documents.units import unit_texts

ROOT = Path(__file__).parents[3]


def echo_daemon(directory: Path, *scripts: Script, bindings=WITH_ECHO, **fields: Any):
    backend = ScriptedBackend(*scripts)
    return make_daemon(directory, backend, bindings=bindings, **fields)


async def ask(server, line: bytes) -> list[Frame]:
    """Send one line and end; give every frame of the answer."""
    async with await server.connect(SOCKET) as client:
        await client.send(line)
        await client.half_close()
        return list(await client.rest())


# --- in a daemon ----------------------------------------------------------------------


async def test_its_socket_is_there_and_its_requests_are_answered(
    short_dir, autojump_clock
):
    async with running(echo_daemon(short_dir)) as server:
        mode = stat.S_IMODE((short_dir / SOCKET).stat().st_mode)
        frames = await ask(server, to_line(echo_fields("hello")))
        async with await server.connect() as client:
            assert (await client.ask())[-1]["type"] == "done"
    assert mode == 0o660
    assert frames == [
        {
            "type": "echo",
            "id": "r",
            "text": "hello",
            "answer": "one two",
            "backend": "scripted",
        }
    ]


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        (generate("r"), "invalid_request", "missing required field `text`"),
        (to_line({"type": "dance"}), "invalid_request", "missing required field"),
        (b"what?\n", "invalid_request", "malformed"),
        (b'{"text":"a","text":"b"}\n', "invalid_request", "text"),
        (to_line(echo_fields("")), "invalid_request", "text must not be empty"),
        (
            to_line(echo_fields("a" * OFFLOAD_LINE_BYTES)),
            "frame_too_large",
            f"fewer than {OFFLOAD_LINE_BYTES} are allowed on this socket",
        ),
    ],
)
async def test_what_is_no_request_of_it_gets_one_typed_error(
    line, code, text, short_dir, autojump_clock
):
    async with running(echo_daemon(short_dir)) as server:
        [frame] = await ask(server, line)
    assert (frame["type"], frame["code"]) == ("error", code)
    assert text in frame["message"]


async def test_a_failing_backend_ends_an_answer_once(short_dir, autojump_clock):
    script = Script(failure=ZeroDivisionError())
    async with running(echo_daemon(short_dir, script)) as server:
        [frame] = await ask(server, to_line(echo_fields()))
    assert frame["code"] == "internal"


async def test_status_metrics_and_log_name_it(short_dir, autojump_clock):
    script = Script(), Script(prepare_s=FOR_EVER)
    with capture_logs() as log:
        async with running(echo_daemon(short_dir, *script)) as server:
            await ask(server, to_line(echo_fields("hello")))
            async with await server.connect(SOCKET) as client:
                await client.send(to_line(echo_fields("a", "waits")))
                await trio.testing.wait_all_tasks_blocked()
                async with await server.admin() as admin:
                    await admin.send(to_line({"command": "requests"}))
                    listed = await reply(admin)
            metrics = server.metrics.text()
    [waiting] = listed["requests"]
    assert (waiting["id"], waiting["socket"]) == ("waits", SOCKET)
    assert f'inferd_requests_total{{outcome="end",socket="{SOCKET}"}} 1.0' in metrics
    [ready] = [each for each in log if each["event"] == "daemon.ready"]
    assert SOCKET in ready["sockets"]
    [done] = [each for each in log if each["event"] == "echo_request_done"]
    told = {"socket": SOCKET, "wire_version": "echo", "n_chars": 5}
    told |= {"n_answer_chars": 7, "input_tokens": 3}
    assert told.items() <= done.items()
    assert "output_tokens" not in done


async def reply(admin) -> Frame:
    while True:
        frame = dict(await admin.frame())
        if frame["type"] == "reply":
            return frame


async def test_it_is_bound_only_if_a_backend_can_serve_it(short_dir, autojump_clock):
    backend = ScriptedBackend(capabilities=BackendCapabilities(rerank=True))
    never = replace(ECHO, is_served_by=lambda caps: caps.embed)
    server = make_daemon(short_dir, backend, bindings=(*BINDINGS, never))
    async with running(server):
        names = sorted(path.name for path in short_dir.glob("*.sock"))
    assert names == ["admin.sock", "infer.rerank.sock", "infer.sock"]


async def test_an_inherited_socket_of_it_serves_or_refuses(short_dir, autojump_clock):
    never = replace(ECHO, is_served_by=lambda _: False)
    with held(short_dir, SOCKET) as hand_over:
        async with running(echo_daemon(short_dir, inherited=hand_over())) as server:
            [frame] = await ask(server, to_line(echo_fields()))
        assert frame["type"] == "echo"
        unserved = echo_daemon(
            short_dir, inherited=hand_over(), bindings=(*BINDINGS, never)
        )
        async with running(unserved) as server:
            [frame] = await ask(server, b"")
        assert frame["code"] == "backend_unavailable"


# --- beside it ------------------------------------------------------------------------


async def test_it_has_the_access_rule_of_infer_and_none_that_is_wider(
    short_dir, autojump_clock
):
    rules = [AccessSettings(infer=AccessRule(uids=(uid,))) for uid in (7, 8)]
    config = Config(access=rules[1])
    daemon = echo_daemon(short_dir, access=rules[0], read_config=lambda: config)
    acceptor = daemon.daemon._running_config.acceptor
    assert acceptor.access.rules[SOCKET].uids == {7}
    async with running(daemon):
        await daemon.daemon.reload()
        assert acceptor.access.rules[SOCKET].uids == {8}
    assert SOCKET not in load_access(AccessSettings(), SURFACES).rules


def test_systemd_may_pass_its_socket():
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "infer.echo"}
    assert listen_fds(environ, 1, SURFACES) == {SOCKET: 3}
    with pytest.raises(ActivationError, match=r"'infer\.echo'"):
        listen_fds(environ, 1)


def test_its_units_are_generated_and_services_name_them(tmp_path):
    root = tmp_path / "systemd"
    shutil.copytree(ROOT / "systemd", root)
    texts = {path.relative_to(root): text for path, text in unit_texts(root).items()}
    more = unit_texts(root, SURFACES)
    more = {path.relative_to(root): text for path, text in more.items()}
    added = ["inferd-echo.socket", "inferd-echo@.socket", "user/inferd-echo.socket"]
    assert sorted(map(str, set(more) - set(texts))) == added
    like = "user/inferd-rerank.socket", "user/inferd-echo.socket"
    old, new = texts[Path(like[0])], more[Path(like[1])]
    assert new == old.replace("rerank", "echo").replace(
        "documents ordered by a query", "what was said"
    )
    for service in ("inferd.service", "inferd@.service", "user/inferd.service"):
        at = "@%i" if "@" in service else ""
        before, after = texts[Path(service)], more[Path(service)]
        n = 3  # Requires=, After= and Sockets=
        assert after.count(f" inferd-echo{at}.socket inferd-admin{at}.socket") == n
        assert after.replace(f" inferd-echo{at}.socket", "") == before
    for path, text in more.items():
        (root / path).write_text(
            text.replace("/opt/inferd/current/bin/inferd", "/bin/true")
        )
    units = [root / path for path in more if path.parent == Path()]
    verified = subprocess.run(
        ["systemd-analyze", "verify", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, "")


async def test_the_doctor_checks_its_socket(short_dir, autojump_clock):
    async with running(echo_daemon(short_dir)):
        finding = check_sockets(short_dir, surfaces=SURFACES)
        assert finding.verdict is Verdict.OK
        assert f"{SOCKET} 0660" in finding.detail
        (short_dir / SOCKET).chmod(0o666)
        assert check_sockets(short_dir, surfaces=SURFACES).detail == (
            f"wrong mode of {SOCKET}"
        )
        assert check_sockets(short_dir).verdict is Verdict.OK


def stay_silent(sock: socket.socket) -> None:
    sock.recv(1)


def test_the_command_line_finds_a_daemon_by_it(short_dir):
    with listening(short_dir / SOCKET, stay_silent):
        for known, text in (
            (SURFACES, "the daemon serves no embeddings"),
            (surfaces.SURFACES, f"no daemon answers at {short_dir}"),
        ):
            with (
                pytest.raises(CommandError) as caught,
                open_client(short_dir, "embeddings", known) as client,
            ):
                client.embed(EmbedRequest(id="r", input=["a"]))
            assert caught.value.text.startswith(text)


def test_a_terminal_shows_its_command():
    fields = {"directory": "/run/inferd", "sockets": [SOCKET]}
    record = record_of("daemon", "info", "daemon.ready", fields)
    line = ConsoleFormat(colours=False, surfaces=SURFACES)(record).decode()
    assert "try: inferd echo hello" in line


# --- a binding that lacks a part ------------------------------------------------------

PARTS = {each.name: getattr(ECHO, each.name) for each in fields(ECHO)}
REQUIRED = ["surface", "is_served_by", "decode", "service"]


@each_case("part", REQUIRED)
def test_a_binding_without_a_part_cannot_be_made(part):
    Binding(**PARTS)
    with pytest.raises(TypeError, match=part):
        Binding(**{name: value for name, value in PARTS.items() if name != part})


async def test_without_its_binding_there_is_no_socket(short_dir, autojump_clock):
    async with running(echo_daemon(short_dir, bindings=BINDINGS)):
        assert not (short_dir / SOCKET).exists()


def test_a_daemon_with_two_surfaces_of_one_name_cannot_be_made(short_dir):
    with pytest.raises(ValueError, match="two surfaces are called echo"):
        echo_daemon(short_dir, bindings=(*WITH_ECHO, ECHO))
    twin = replace(ECHO, surface=replace(ECHO.surface, name="twin"))
    with pytest.raises(ValueError, match=f"two surfaces are called {SOCKET}"):
        echo_daemon(short_dir, bindings=(*WITH_ECHO, twin))
