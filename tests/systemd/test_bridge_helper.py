"""The bridge's helper as a service of the machine, under a real systemd."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.fakes import hub as fake_hub
from tests.fakes.gguf_bytes import gguf
from tests.systemd.container import (
    ROOT,
    Container,
    booted,
    missing,
    overlay,
    place,
    place_library,
    tool,
    use_release,
)
from tests.systemd.test_bridge import URL, as_user, eventually, typed

REASON = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.systemd,
    pytest.mark.skipif(bool(REASON), reason=f"no container: {REASON}"),
]

DOWNLOADER = (
    *("filelock", "httpcore2", "httpx2", "huggingface_hub", "tqdm"),
    *("truststore", "yaml"),
)
"""What the downloader imports, besides the libraries of the bridge."""
UNIT = "inferd-bridge-helper.service"
SOCKET = "/run/inferd/bridge_helper.sock"
STORE = "/var/lib/inferd/models"
MODEL = gguf()
BYTES = 4_000_000
"""Of a file that stalls: more than the pipes on its way hold."""
HUB = f"""
import shutil, sys
sys.path.insert(0, "/opt/fakes")
from hub import Behaviour, running_hub
with running_hub() as hub:
    shutil.copy(hub.ca_file, "/etc/ssl/hub.pem")
    hub.behaviours["/public/slow.gguf"] = Behaviour(sends={BYTES // 2}, then="stall")
    digests = [
        hub.add("/public/tiny.gguf", {MODEL!r}),
        hub.add("/public/slow.gguf", {MODEL!r}.ljust({BYTES}, b"x")),
        hub.add("/private/tiny.gguf", {MODEL!r}),
    ]
    print(hub.port, *digests, flush=True)
    sys.stdin.read()
"""
CONFIG = """
[bridge_helper]
allow = ["list", "show", "pull", "remove", "status", "reload"]
allow_sources = ["embedded:", "https://localhost:%s/public/"]
min_free_bytes = 0

[[backend]]
name = "hello"
kind = "mock"
tokens = ["Hel", "lo"]
"""
DROP_IN = """[Service]
Environment=SSL_CERT_FILE=/etc/ssl/hub.pem PIP_NO_INDEX=1 PYTHONPATH=/opt/libraries
"""
PAGE = (ROOT / "docs/bridge.md").read_text()
[ENABLE] = re.findall(r"`(systemctl enable --now inferd-bridge-helper\.socket)`", PAGE)


class Machine:
    """A container with a bridge, and a hub on its loopback.

    Args:
        container: that is booted.
        port: of the hub.
        digests: of its files, by their addresses.
    """

    def __init__(
        self, container: Container, port: str, digests: dict[str, str]
    ) -> None:
        self.container = container
        self.origin = f"https://localhost:{port}"
        self.digests = digests
        self.run = container.run
        self.keys = {
            name: self.run(*typed_token(name, scopes)).stdout.strip()
            for name, scopes in (("ada", "models"), ("bob", "admin"))
        }

    def curl(self, method: str, path: str, body: Any, name: str) -> tuple[str, ...]:
        """Write the command that asks as the holder of a token."""
        data = () if body is None else ("--data", json.dumps(body))
        head = ("--header", f"Authorization: Bearer {self.keys[name]}")
        options = ("--silent", "--no-buffer", "--request", method)
        return ("curl", *options, *head, *data, f"{URL}{path}")

    def ask(self, method: str, path: str, body: Any = None, name: str = "ada") -> Any:
        """Give the last line of the answer."""
        said = self.run(*self.curl(method, path, body, name)).stdout
        return json.loads(said.splitlines()[-1])

    def source(self, path: str) -> dict[str, str]:
        """Write the body of a request to pull a file of the hub."""
        return {"source": f"{self.origin}{path}", "sha256": self.digests[path]}

    def state(self) -> str:
        return self.container.show("ActiveState", unit=UNIT)["ActiveState"]

    def journal(self) -> str:
        return self.run("journalctl", "-u", UNIT, "-o", "cat").stdout

    def processes(self) -> list[str]:
        """Give the pids of all processes of the unit."""
        lines = self.run("ps", "-e", "-o", "pid=,cgroup=").stdout.splitlines()
        return [line.split()[0] for line in lines if UNIT in line]

    def pid(self) -> str:
        return self.container.show("MainPID", unit=UNIT)["MainPID"]


def typed_token(name: str, scopes: str) -> tuple[str, ...]:
    return ("inferd", "bridge", "token", "add", name, "--scope", scopes, "--system")


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Iterator[Machine]:
    with ExitStack() as stack:
        root = stack.enter_context(overlay(tmp_path_factory.mktemp("machine")))
        place(root)
        (root / "opt/libraries").mkdir()
        site = Path(httpx2.__file__).parents[1]
        for name in DOWNLOADER:
            place_library(site / name, root / "opt/libraries")
        (root / "opt/fakes").mkdir()
        shutil.copy(fake_hub.__file__, root / "opt/fakes/hub.py")
        drop_in = root / f"etc/systemd/system/{UNIT}.d/test.conf"
        drop_in.parent.mkdir(parents=True)
        drop_in.write_text(DROP_IN)
        container = stack.enter_context(booted(root))
        hub = stack.enter_context(container.start("/usr/bin/python3", "-c", HUB))
        assert hub.stdout is not None
        port, *digests = hub.stdout.readline().split()
        paths = ("/public/tiny.gguf", "/public/slow.gguf", "/private/tiny.gguf")
        container.run("mkdir", "-p", "/etc/inferd")
        write = "cat > /etc/inferd/config.toml"
        container.run("sh", "-c", write, stdin=CONFIG % port)
        container.run("useradd", "--groups", "inferd", "member")
        container.run("systemctl", "start", "inferd.socket")
        container.run(*typed("enable --now inferd-bridge.socket"))
        yield Machine(container, port, dict(zip(paths, digests, strict=True)))


@pytest.fixture(scope="module")
def helped(machine: Machine) -> Machine:
    refused = machine.ask("GET", "/admin/models")["error"]
    assert "inferd bridge helper" in refused["message"]
    machine.run(*ENABLE.split())
    assert machine.state() == "inactive"
    return machine


def test_the_first_request_starts_it_and_a_machine_without_store_has_no_models(helped):
    assert helped.ask("GET", "/admin/models") == {"models": []}, helped.journal()
    assert helped.state() == "active"


def test_the_bridge_alone_connects(helped):
    mode = helped.run("stat", "-c", "%U:%G %a", SOCKET).stdout.strip()
    assert mode == "root:inferd-bridge 660"
    for name in ("member", "inferd"):
        connect = ("curl", "--silent", "--unix-socket", SOCKET, "http://any/")
        assert helped.run(*as_user(name), *connect, check=False).returncode == 7


def test_a_model_is_pulled_read_by_the_daemons_user_and_removed(helped):
    pulled = helped.ask("POST", "/admin/pull", helped.source("/public/tiny.gguf"))
    assert pulled["type"] == "done", helped.journal()
    name = pulled["model"]
    [model] = helped.ask("GET", "/admin/models")["models"]
    assert (model["name"], model["is_complete"]) == (name, True)
    assert helped.ask("GET", f"/admin/models/{name}")["name"] == name
    blob = f"{STORE}/blobs/{helped.digests['/public/tiny.gguf']}"
    assert helped.run("stat", "-c", "%U:%G", blob).stdout.strip() == "root:root"
    assert helped.run(*as_user("inferd"), "cmp", blob, blob).returncode == 0
    assert "weaker" not in helped.journal()
    removed = helped.ask("DELETE", f"/admin/models/{name}")
    assert removed["freed_bytes"] == len(MODEL)
    assert helped.ask("GET", "/admin/models") == {"models": []}


def test_other_sources_are_refused(helped):
    refused = helped.ask("POST", "/admin/pull", helped.source("/private/tiny.gguf"))
    assert "allow_sources" in refused["error"]["message"]


def test_programs_of_packages_run_in_the_unit(helped):
    failed = helped.ask("POST", "/admin/pull", {"source": "embedded:chat"})
    assert failed["type"] == "error"
    assert "No matching distribution" in helped.journal()  # pip had no index
    assert "weaker" not in helped.journal()
    left = helped.run("find", STORE, "-name", ".scratch-*").stdout
    assert left == ""


def test_who_hangs_up_ends_the_pull_and_all_its_processes(helped):
    asking = helped.curl(
        "POST", "/admin/pull", helped.source("/public/slow.gguf"), "ada"
    )
    with helped.container.start(*asking) as client:
        assert client.stdout is not None
        while '"phase":"download"' not in client.stdout.readline():
            assert client.poll() is None
        busy = helped.ask("POST", "/admin/pull", helped.source("/public/tiny.gguf"))
        assert "another pull" in busy["error"]["message"]
        client.kill()
    assert eventually(lambda: helped.processes() == [helped.pid()])
    assert '"outcome":"hung_up"' in helped.journal()


def test_it_commands_the_daemon(helped):
    listed = helped.ask("GET", "/admin/backends", name="bob")["backends"]
    assert [each["name"] for each in listed] == ["hello"]
    assert helped.ask("POST", "/admin/reload", name="bob")["type"] == "done"


def test_it_writes_nowhere_but_to_the_store(helped):
    helped.ask("GET", "/admin/models")
    inside = ("nsenter", "-t", helped.pid(), "-m")
    for path in ("/etc/inferd/x", "/var/lib/inferd/x", "/opt/inferd/x", "/run/x"):
        said = helped.run(*inside, "cat", "/proc/self/mountinfo").stdout
        assert helped.run(*inside, "touch", path, check=False).returncode, path + said
    helped.run(*inside, "touch", f"{STORE}/x")
    helped.run("rm", f"{STORE}/x")


def test_stopped_it_ends_well_and_the_next_request_starts_it(helped):
    helped.ask("GET", "/admin/models")
    helped.run("systemctl", "stop", UNIT)
    result = helped.container.show("ActiveState", "Result", unit=UNIT)
    assert result == {"ActiveState": "inactive", "Result": "success"}
    assert helped.ask("GET", "/admin/models") == {"models": []}


def test_an_upgrade_restarts_it(helped):
    helped.ask("GET", "/admin/models")
    before = helped.pid()
    helped.run(*use_release(2))
    assert helped.ask("GET", "/admin/models") == {"models": []}
    assert helped.pid() != before


def test_uninstalling_leaves_no_unit_and_no_process(helped):
    helped.ask("GET", "/admin/models")
    helped.run(*tool("uninstall()"))
    assert helped.run("pgrep", "-f", "bridge helper", check=False).stdout == ""
    found = ("find", "/etc/systemd", "/run/inferd", "-name", "inferd-bridge-helper.*")
    assert helped.run(*found, "-not", "-type", "d").stdout == ""  # drop-ins stay
