"""The HTTP bridge as a service of the machine, under a real systemd."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.documents import pages
from tests.systemd.container import (
    Container,
    booted,
    missing,
    overlay,
    place,
    tool,
    use_release,
)

REASON = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.systemd,
    pytest.mark.skipif(bool(REASON), reason=f"no container: {REASON}"),
]

PATIENCE_S = 120.0
CONFIG = """
[access]
gateways = {uids = ["inferd-bridge"]}

[bridge]
gateway = true

[[backend]]
name = "hello"
kind = "mock"
tokens = ["Hel", "lo"]

[[backend]]
name = "slow"
kind = "mock"
tokens = ["a", "b", "c", "d", "e", "f", "g", "h"]
token_delay_ms = 300

[[backend]]
name = "sees"
kind = "mock"
vision = true
"""
UNIT = "inferd-bridge.service"
URL = "http://127.0.0.1:8313"
UNIX = "/run/inferd-bridge/bridge.sock"
TOKENS = "/etc/inferd/bridge-tokens.json"


def typed(words: str) -> tuple[str, ...]:
    """Give the command of the page that has these words; the container has no sudo."""
    return tuple(pages.command("docs/service.md", words).removeprefix("sudo ").split())


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Iterator[Container]:
    with overlay(tmp_path_factory.mktemp("machine")) as root:
        place(root)
        (root / "etc/inferd").mkdir(exist_ok=True)
        (root / "etc/inferd/config.toml").write_text(CONFIG)
        with booted(root) as container:
            container.run("useradd", "--groups", "inferd", "member")
            container.run("useradd", "stranger")
            container.run("systemctl", "start", "inferd.socket")
            container.run(*typed("enable --now inferd-bridge.socket"))
            yield container


@pytest.fixture(scope="module")
def key(machine) -> str:
    return str(machine.run(*typed("token add ada --system")).stdout.strip())


def eventually(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def chat(key: str, *options: str, model: str = "hello") -> tuple[str, ...]:
    """Write the command that asks as the holder of a token."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": model == "slow",
    }
    header = ("--header", f"Authorization: Bearer {key}") if key else ()
    url = f"{URL}/v1/chat/completions"
    return ("curl", "--silent", *header, *options, "--data", json.dumps(body), url)


def answer(machine: Container, key: str, *before: str) -> Any:
    return json.loads(machine.run(*before, *chat(key)).stdout)


def as_user(name: str) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={name}", f"--regid={name}", "--init-groups")


def pid_of(machine: Container) -> str:
    return machine.show("MainPID", unit=UNIT)["MainPID"]


def test_it_is_installed_and_not_enabled_until_somebody_says_so(machine):
    found = machine.run("systemctl", "is-enabled", UNIT, check=False).stdout.strip()
    assert found == "disabled"


def test_the_first_connection_starts_it_and_a_token_is_answered(machine, key):
    assert machine.show("ActiveState", unit=UNIT) == {"ActiveState": "inactive"}
    found = answer(machine, key)
    assert found["choices"][0]["message"]["content"] == "Hello"
    state = machine.show("ActiveState", "SubState", unit=UNIT)
    assert state == {"ActiveState": "active", "SubState": "running"}


def test_nobody_else_is_answered_on_loopback(machine, key):
    for name in ("root", "inferd", "stranger"):
        refused = answer(machine, "", *as_user(name))
        assert refused["error"]["code"] == "invalid_api_key"
    found = answer(machine, key, *as_user("stranger"))
    assert found["choices"][0]["message"]["content"] == "Hello"


def test_the_unix_socket_is_for_members_and_wants_a_token_too(machine, key):
    health = ("curl", "--silent", "--unix-socket", UNIX, "http://any/health")
    assert machine.run(*as_user("member"), *health).stdout == '{"status":"ok"}'
    assert machine.run(*as_user("stranger"), *health, check=False).returncode
    refused = machine.run(*as_user("member"), *chat("", "--unix-socket", UNIX)).stdout
    assert json.loads(refused)["error"]["code"] == "invalid_api_key"
    found = machine.run(*as_user("member"), *chat(key, "--unix-socket", UNIX)).stdout
    assert json.loads(found)["choices"]


def test_its_user_reads_the_tokens_and_neither_writes_them_nor_reads_models(
    machine, key
):
    answer(machine, key)
    listed = machine.run("stat", "-c", "%U:%G %a", TOKENS).stdout.strip()
    assert listed == "root:inferd-bridge 640"
    inside = ("nsenter", "-t", pid_of(machine), "-m", *as_user("inferd-bridge"))
    assert machine.run(*inside, "cat", TOKENS).stdout
    for command in (
        ("sh", "-c", f"echo >> {TOKENS}"),
        ("ls", "/var/lib/inferd"),
        ("ls", "/var/log/inferd"),
        ("nc", "-N", "-U", "/run/inferd/admin.sock"),
    ):
        assert machine.run(*inside, *command, check=False).returncode, command


def test_what_decodes_pictures_is_confined_in_the_unit_as_well(machine, key):
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs="
    shown = [{"type": "image_url", "image_url": {"url": pixel}}]
    body = {"model": "sees", "messages": [{"role": "user", "content": shown}]}
    asking = [*chat(key)]
    asking[asking.index("--data") + 1] = json.dumps(body)
    assert "choices" in json.loads(machine.run(*asking).stdout)
    journal = machine.run("journalctl", "-u", UNIT, "-o", "cat").stdout
    lines = [json.loads(each) for each in journal.splitlines() if each[:1] == "{"]
    [line] = [each for each in lines if each["msg"] == "media_decoder.confined"]
    assert "missing" not in line


def test_the_doctor_looks_at_it(machine, key):
    answer(machine, key)
    said = machine.run("inferd", "doctor", "--system", check=False).stdout
    assert "inferd-bridge.service is active" in said
    assert "1 tokens" in said


def test_the_log_of_the_daemon_names_the_token(machine, key):
    answer(machine, key)
    journal = ("journalctl", "-u", "inferd", "-o", "cat")
    assert eventually(lambda: '"principal":"ada"' in machine.run(*journal).stdout)


def test_a_restart_of_the_daemon_is_none_of_the_bridge(machine, key):
    answer(machine, key)
    before = pid_of(machine)
    machine.run("systemctl", "restart", "inferd")
    assert answer(machine, key)["choices"][0]["message"]["content"] == "Hello"
    assert pid_of(machine) == before


def test_what_was_used_today_outlives_a_restart(machine):
    add = ("inferd", "bridge", "token", "add", "bob", "--quota", "5000", "--system")
    limited = machine.run(*add).stdout.strip()
    answer(machine, limited)
    machine.run("systemctl", "restart", UNIT)
    used = machine.run("cat", "/var/lib/inferd-bridge/bridge-usage.json").stdout
    assert json.loads(used)["used"]["bob"] > 0
    machine.run("inferd", "bridge", "token", "remove", "bob", "--system")


def test_stopping_it_finishes_a_stream_and_leaves_the_sockets(machine, key):
    with machine.start(*chat(key, "--no-buffer", model="slow")) as client:
        assert client.stdout is not None
        assert client.stdout.readline().startswith("data:")
        machine.run("systemctl", "stop", UNIT)
        rest, _ = client.communicate(timeout=PATIENCE_S)
    assert rest.strip().endswith("data: [DONE]")
    assert '"finish_reason":"stop"' in rest
    state = machine.show("ActiveState", "Result", unit=UNIT)
    assert state == {"ActiveState": "inactive", "Result": "success"}
    assert answer(machine, key)["choices"]  # the next request starts it


def test_a_blocked_loop_is_ended_by_the_watchdog_and_started_again(machine, key):
    folder = f"/run/systemd/system/{UNIT}.d"
    machine.run("mkdir", "-p", folder)
    machine.run(
        "sh", "-c", f"cat > {folder}/w.conf", stdin="[Service]\nWatchdogSec=2s\n"
    )
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", UNIT)
    machine.run("kill", "-STOP", pid_of(machine))
    assert eventually(lambda: machine.show("NRestarts", unit=UNIT)["NRestarts"] != "0")
    assert answer(machine, key)["choices"]
    machine.run("rm", "-r", folder)
    machine.run("systemctl", "daemon-reload")


def test_an_upgrade_restarts_it(machine, key):
    answer(machine, key)
    before = pid_of(machine)
    machine.run(*use_release(2))
    assert pid_of(machine) != before
    assert answer(machine, key)["choices"][0]["message"]["content"] == "Hello"


def test_tokens_that_cannot_be_read_stop_it_and_not_its_sockets(machine, key):
    machine.run("chmod", "644", TOKENS)
    refused = answer(machine, key)
    assert refused["error"]["code"] == "backend_unavailable"
    started = machine.run("systemctl", "restart", UNIT, check=False)
    assert started.returncode
    state = machine.show("ActiveState", "ExecMainStatus", unit=UNIT)
    assert (state["ActiveState"], state["ExecMainStatus"]) == ("failed", "2")
    journal = machine.run("journalctl", "-u", UNIT, "-o", "cat").stdout
    assert f"chmod 640 {TOKENS}" in journal
    machine.run("chmod", "640", TOKENS)
    assert answer(machine, key)["choices"]


def test_uninstalling_leaves_no_unit_and_no_process(machine, key):
    answer(machine, key)
    machine.run(*tool("uninstall()"))
    assert machine.run("pgrep", "-f", "inferd bridge", check=False).stdout == ""
    places = ("/etc/systemd", "/run/inferd-bridge")
    assert machine.run("find", *places, "-name", "*bridge*.s*").stdout == ""
