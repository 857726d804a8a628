"""Remote backends in the real unit, with and without remote.conf: who has a network."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.remote_engine import ANSWER
from tests.systemd.container import (
    PREFIX,
    Container,
    booted,
    missing,
    overlay,
    place,
    place_library,
)

REASON = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.systemd,
    pytest.mark.skipif(bool(REASON), reason=f"no container: {REASON}"),
]

SCRATCH: Final = "/opt/remote"
STATE: Final = "/var/lib/inferd/state"
DROP_INS: Final = "/etc/systemd/system/inferd.service.d"
PORT: Final = 8089
CONFIG: Final = f"""
[[backend]]
name = "far"
kind = "openai"
base_url = "http://127.0.0.1:{PORT}"
model = "m"

[[backend]]
name = "near"
kind = "mock"
"""
SERVER: Final = f"""
import pathlib, socket
answer = pathlib.Path("{SCRATCH}/answer").read_bytes()
with socket.create_server(("127.0.0.1", {PORT})) as server:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)
"""
PROBE: Final = f"""
import errno, os, signal, socket
try:
    said = os.open(f"{STATE}/{{os.getpid()}}.said", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC)
except OSError:
    said = -1

def probe(*_):
    try:
        socket.socket(socket.AF_INET).close()
        outcome = "done"
    except OSError as error:
        outcome = errno.errorcode[error.errno]
    os.write(said, outcome.encode())

if said >= 0:
    signal.signal(signal.SIGUSR2, probe)
"""
"""In each process of the service: at this signal it tries to make a socket."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    import httpcore2  # noqa: PLC0415  # an extra
    import truststore  # noqa: PLC0415  # an extra

    with overlay(tmp_path_factory.mktemp("machine")) as root:
        place(root)
        packages = root / "usr/lib/python3/dist-packages"
        for library in (httpcore2, truststore):
            place_library(Path(str(library.__file__)).parent, packages)
        (packages / "probe_network.py").write_text(PROBE)
        (packages / "probe.pth").write_text("import probe_network\n")
        scratch = root / SCRATCH.lstrip("/")
        scratch.mkdir()
        (scratch / "answer").write_bytes(ANSWER)
        (scratch / "server.py").write_text(SERVER)
        (root / "etc/inferd").mkdir(exist_ok=True)
        (root / "etc/inferd/config.toml").write_text(CONFIG)
        with booted(root) as container:
            container.run("ip", "link", "set", "lo", "up", check=False)
            with container.start("/usr/bin/python3", f"{SCRATCH}/server.py") as server:
                try:
                    yield container
                finally:
                    server.kill()


def started(machine: Container, *, has_drop_in: bool) -> None:
    machine.run("systemctl", "stop", "inferd", check=False)
    machine.run("rm", "-rf", DROP_INS)
    if has_drop_in:
        conf = f"{PREFIX}/current/share/systemd/remote.conf"
        machine.run("install", "-D", "--mode=0644", conf, f"{DROP_INS}/remote.conf")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "inferd", check=False)


def ask(machine: Container, model: str) -> dict[str, object]:
    request = {
        "id": "a",
        "model": model,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 20,
        "stream": False,
    }
    said = machine.run(
        *("nc", "-N", "-U", "/run/inferd/infer.sock"), stdin=json.dumps(request) + "\n"
    )
    return dict(json.loads(said.stdout.splitlines()[-1]))


def processes(machine: Container) -> dict[str, int]:
    """List the service's processes: what they run, and their ids."""
    found: dict[str, int] = {}
    for each in machine.run("pgrep", "-a", "-u", "inferd").stdout.splitlines():
        pid, *line = each.split()
        program = line[line.index("-m") + 1] if "-m" in line else "daemon"
        found.setdefault(program, int(pid))  # a worker of a remote is a later fork
    return found


def network_of(machine: Container, pid: int) -> str:
    machine.run("kill", "-USR2", str(pid))
    for _ in range(100):
        if said := machine.run("cat", f"{STATE}/{pid}.said").stdout:
            return said
        machine.run("sleep", "0.05")
    return "nothing"


def test_with_the_drop_in_workers_of_remotes_alone_have_a_network(machine):
    started(machine, has_drop_in=True)
    answer = ask(machine, "far")
    assert answer["type"] == "done", machine.run("journalctl", "-u", "inferd").stdout
    assert ask(machine, "near")["type"] == "done"
    found = processes(machine)
    main = int(machine.show("MainPID")["MainPID"])
    assert network_of(machine, main) == "EPERM"
    assert network_of(machine, found["inferd.worker.mock"]) == "EPERM"


def test_workers_end_with_the_service_and_one_that_is_killed_comes_back(machine):
    started(machine, has_drop_in=True)
    spawner = processes(machine)["inferd.worker.spawner"]
    children = machine.run("cat", f"/proc/{spawner}/task/{spawner}/children").stdout
    [worker] = children.split()
    for pid in (str(spawner), worker):  # code in the daemon cannot trace them
        owner = machine.run("stat", "--format=%U", f"/proc/{pid}/environ").stdout
        assert owner == "root\n"
    machine.run("kill", "-KILL", worker)
    assert ask(machine, "far")["type"] == "done"
    assert ask(machine, "near")["type"] == "done"
    machine.run("systemctl", "stop", "inferd")
    assert machine.show("Result")["Result"] == "success"
    left = machine.run("pgrep", "-f", "inferd.worker", check=False).stdout
    assert left == ""


def test_without_it_the_refusal_says_what_to_do(machine):
    started(machine, has_drop_in=False)
    journal = machine.run("journalctl", "-u", "inferd", "-n", "20").stdout
    assert "the service has no network; its drop-in remote.conf gives it one" in journal
