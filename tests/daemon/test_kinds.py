"""A real daemon with kinds of backends that it does not come with: one record each."""

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from inferd.config.kinds.registry import KINDS
from inferd.sandbox.syscalls import this_machine
from tests.daemon.configuration import Table
from tests.daemon.harness import (
    SERVE_WITH_KINDS,
    WITH_KINDS,
    Config,
    DaemonProcess,
    Frame,
    MakeDaemon,
    clean_environ,
    eventually,
    generate,
    mock,
    preloaded,
)

pytestmark = pytest.mark.slow

ECHO: Table = {"name": "parrot", "kind": "echo", "greeting": "polly"}
ECHO_KEYS = "aliases, greeting, is_broken, kind, name"
KIND_NAMES = sorted([*(kind.name for kind in KINDS.kinds), "echo", "shout"])
MIB = 2**20


@pytest.fixture
def text(short_dir: Path) -> Path:
    path = short_dir / "text"
    path.write_bytes(b"be quiet")
    return path


@pytest.fixture
def make(make_daemon: MakeDaemon) -> MakeDaemon:
    """Make daemons that have these kinds as well."""

    def made(
        config: Config, *, environ: Mapping[str, str] | None = None
    ) -> DaemonProcess:
        daemon = make_daemon(config, environ=environ)
        daemon.command = SERVE_WITH_KINDS
        return daemon

    return made


def shout(text: Path, **settings) -> Table:
    return {"name": "crier", "kind": "shout", "file": str(text), **settings}


def doctor(daemon: DaemonProcess) -> dict[str, dict[str, str]]:
    command = [*WITH_KINDS, "doctor", "--json", "--config", str(daemon.config_file)]
    done = preloaded().run(command, clean_environ())
    findings = json.loads(done.stdout)["findings"]
    return {each["check"]: each for each in findings}


def capabilities(daemon: DaemonProcess) -> dict[str, str]:
    """Give the models of all backends, as ``inferd status`` has them."""
    with daemon.admin() as listener:
        frames = [listener.frame()]
        while frames[-1]["status"] != "ready":
            frames.append(listener.frame())
    return {each["backend"]: each["model"] for each in frames[:-1]}


def whole_answer(daemon: DaemonProcess) -> list[Frame]:
    """Ask, and read to the end of the connection: what comes after the last frame, too."""
    with daemon.connect() as connection:
        connection.send(generate())
        connection.half_close()
        return connection.read_to_eof()


def memory_needed(daemon: DaemonProcess) -> float:
    """Read how much the memory plan gives to all backends."""
    text = daemon.admin().order("metrics")["text"]
    [line] = re.findall(r"^inferd_memory_needed_bytes (.*)$", text, re.MULTILINE)
    return float(line)


# --- without a worker ---------------------------------------------------------------------


def test_a_backend_in_the_daemon_answers_with_one_terminal_frame(make: MakeDaemon):
    daemon = make({"backend": [ECHO]}).start()
    token, done = whole_answer(daemon)
    assert (token["type"], token["content"]) == ("token", "polly")
    assert (done["type"], done["backend"]) == ("done", "parrot")
    assert capabilities(daemon) == {"parrot": "echo"}
    assert memory_needed(daemon) == 0
    assert daemon.worker_pids() == []


def test_it_serves_beside_a_worker_and_waits_for_no_memory_plan(make: MakeDaemon, text):
    daemon = make({"backend": [ECHO, mock(), shout(text)]}).start()
    assert set(capabilities(daemon)) == {"parrot", "mock", "crier"}


def test_a_backend_that_does_not_get_ready_ends_the_start(make: MakeDaemon):
    daemon = make({"backend": [{**ECHO, "is_broken": True}]})
    assert daemon.refusal() == "error: backend parrot: it is broken"


def test_doctor_tries_it_without_files_memory_or_a_worker(make: MakeDaemon):
    findings = doctor(make({"backend": [ECHO]}))
    named = {name: each for name, each in findings.items() if "[parrot]" in name}
    assert list(named) == ["backend[parrot]"]
    assert named["backend[parrot]"]["verdict"] == "ok"
    assert "model echo" in named["backend[parrot]"]["detail"]
    broken = doctor(make({"backend": [{**ECHO, "is_broken": True}]}))
    assert broken["backend[parrot]"]["verdict"] == "failed"
    assert broken["backend[parrot]"]["detail"] == "backend parrot: it is broken"


# --- with a worker's program of its own -----------------------------------------------------


def test_a_worker_with_another_program_answers_from_its_sandbox(make: MakeDaemon, text):
    daemon = make({"backend": [shout(text)]}).start()
    token, done = whole_answer(daemon)
    assert (token["type"], token["content"]) == ("token", "BE QUIET")
    assert (done["type"], done["backend"]) == ("done", "crier")
    is_closed = this_machine() is not None
    network = "without" if is_closed else "with"
    assert capabilities(daemon) == {"crier": f"shout, {network} a network"}
    [command] = [each for each in daemon.processes().values() if b"fakes.kinds" in each]
    assert b"-m\0tests.fakes.kinds.shout\0" in command
    [boxed] = daemon.logged(msg="worker.boxed", backend="crier")
    assert (boxed["seccomp"], boxed["is_open"]) == (is_closed, False)


def test_its_worker_is_restarted_like_any_other(make: MakeDaemon, text):
    daemon = make({"backend": [shout(text)]}).start()
    daemon.ask()

    def pids() -> list[int]:
        found = daemon.processes().items()
        return [pid for pid, command in found if b"fakes.kinds" in command]

    [pid] = pids()
    subprocess.run(["kill", "-KILL", str(pid)], check=True)
    assert daemon.logged(msg="worker.exited")
    assert daemon.ask()[-1]["type"] == "done"
    assert eventually(lambda: pid not in pids() and len(pids()) == 1)


def test_its_memory_is_planned(make: MakeDaemon, text):
    backend = shout(text, memory_bytes=3 * MIB)
    daemon = make({"backend": [backend], "memory": {"budget": 4 * MIB}}).start()
    assert memory_needed(daemon) == 3 * MIB
    refusal = make({"backend": [backend], "memory": {"budget": 2 * MIB}}).refusal()
    assert refusal.startswith(
        "error: backend crier: not enough memory: crier needs 3 MiB"
    )


def test_doctor_checks_its_file_its_memory_and_its_worker(make: MakeDaemon, text):
    digest = hashlib.sha256(text.read_bytes()).hexdigest()
    findings = doctor(make({"backend": [shout(text, sha256=digest)]}))
    named = {name: each for name, each in findings.items() if "[crier]" in name}
    assert list(named) == ["model[crier]", "memory[crier]", "worker[crier]"]
    assert {each["verdict"] for each in named.values()} == {"ok"}
    assert named["model[crier]"]["detail"].endswith("SHA-256 as expected")
    assert named["worker[crier]"]["detail"].startswith("shout; ")
    other = doctor(make({"backend": [shout(text, sha256="0" * 64)]}))
    assert other["model[crier]"]["verdict"] == "failed"
    assert other["worker[crier]"]["verdict"] == "skipped"


# --- their settings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"loud": True}, f"backend[0].loud: no such key; allowed: {ECHO_KEYS}"),
        ({"greeting": 3}, "backend[0].greeting = 3: expected `str`, got `int`"),
        (
            {"kind": "ech"},
            f"backend[0].kind = 'ech': expected one of {', '.join(KIND_NAMES)}",
        ),
        (
            {"kind": "shout", "file": "x", "is_loud": False, "greeting": None},
            "backend[0].is_loud = False: needs another kind",
        ),
    ],
)
def test_a_wrong_setting_is_an_error_of_the_configuration(
    make: MakeDaemon, settings, reason
):
    table = {**ECHO, **settings}
    given = {key: value for key, value in table.items() if value is not None}
    daemon = make({"backend": [given]})
    assert daemon.refusal() == f"error: {daemon.config_file}: {reason}"


def test_a_reload_knows_the_kinds_and_says_what_needs_a_restart(make: MakeDaemon):
    daemon = make({"backend": [ECHO]}).start()
    before = daemon.config_file.read_text()
    daemon.config_file.write_text(before.replace("polly", "dolly"))
    reply = daemon.admin().order("reload")
    assert (reply["applied"], reply["needs_restart"]) == (
        [],
        ["backend parrot: greeting"],
    )
    daemon.config_file.write_text(before.replace("greeting", "greetings"))
    assert "greetings: no such key" in daemon.admin().order("reload")["error"]
    assert daemon.ask()[0]["content"] == "polly"


def test_the_daemon_as_it_comes_has_neither_kind(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [ECHO]})
    assert daemon.refusal() == (
        f"error: {daemon.config_file}: backend[0].kind = 'echo': "
        "expected one of anthropic, gemini, inferd, llamacpp, mock, ollama, openai, "
        "whisper-server, whispercpp"
    )


def test_a_reload_replaces_a_backend_whose_file_was_replaced(make: MakeDaemon, text):
    daemon = make({"backend": [shout(text), mock()]}).start()
    before = daemon.worker_pids()
    assert daemon.admin().order("reload")["applied"] == []
    assert daemon.worker_pids() == before
    fresh = text.with_name("fresh")
    fresh.write_bytes(b"be loud")
    fresh.replace(text)
    assert whole_answer(daemon)[0]["content"] == "BE QUIET"
    assert daemon.admin().order("reload")["ok"]
    assert whole_answer(daemon)[0]["content"] == "BE LOUD"
    assert daemon.ask(model="mock")[-1]["backend"] == "mock"
    text.unlink()
    reply = daemon.admin().order("reload")
    assert (reply["ok"], "crier" in reply["error"]) == (False, True)
    assert whole_answer(daemon)[0]["content"] == "BE LOUD"
    with daemon.admin() as listener:
        assert listener.until("ready")
