"""A daemon with remote backends, taken over: it has no network, and nothing to get one by."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import DaemonProcess, MakeDaemon, eventually, mock
from tests.fakes.remote_engine import (
    ANSWER,
    Connection,
    RemoteEngine,
    sends,
    serving,
)
from tests.threats.test_f16_hardening import directives

SPAWNER = "inferd.worker.spawner"
GIVING_UP = """
import ctypes, errno, json, os, socket, subprocess, sys

from inferd.config.kinds.registry import KINDS
from inferd.engine.supervisor.spawner import without_network

libc = ctypes.CDLL(None, use_errno=True)
SOCKET = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
TRY = "import socket; socket.socket(socket.AF_INET6)"

def outcome(attempt):
    try:
        return "done" if attempt() in (None, 0) else errno.errorcode[ctypes.get_errno()]
    except OSError as error:
        return errno.errorcode[error.errno]

def make(family, kind=socket.SOCK_STREAM):
    socket.socket(family, kind).close()

def call(number, *arguments):
    return min(0, libc.syscall(number, *arguments))

attempts = {
    "local": lambda: make(socket.AF_UNIX),
    "inet": lambda: make(socket.AF_INET),
    "datagram": lambda: make(socket.AF_INET6, socket.SOCK_DGRAM),
    "netlink": lambda: make(socket.AF_NETLINK, socket.SOCK_RAW),
    "another table": lambda: call(SOCKET | 0x40000000, socket.AF_INET, 1, 0),
    "ring": lambda: call(425, 1, 0),
    "child": lambda: subprocess.run([sys.executable, "-c", TRY], stderr=-3).returncode - 1,
}
with without_network(KINDS, has_remotes=%s, environ=os.environ) as find_fault:
    print(json.dumps([find_fault(), {name: outcome(each) for name, each in attempts.items()}]))
"""


def tried(*, has_remotes: bool, **environ: str) -> tuple[str, dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", GIVING_UP % has_remotes],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    fault, outcomes = json.loads(done.stdout)
    return fault, outcomes


@pytest.mark.slow
def test_no_socket_but_a_local_one_is_made_by_whatever_call_or_child():
    gone = {
        "local": "done",
        **dict.fromkeys(("inet", "datagram", "netlink", "another table"), "EPERM"),
        "ring": "ENOSYS",
        "child": "done",  # it failed to make one
    }
    # remote.conf asks for it where no backend is remote
    assert tried(has_remotes=False, INFERD_GIVE_UP_NETWORK="1") == ("", gone)


def test_the_drop_in_opens_the_network_alone_and_has_the_daemon_give_it_up():
    for unit in ("remote.conf", "user/remote.conf"):
        assert directives(unit) == {
            "Environment": ["INFERD_GIVE_UP_NETWORK=1"],
            "PrivateNetwork": ["no"],
            "RestrictAddressFamilies": ["AF_INET AF_INET6 AF_NETLINK"],
            "IPAddressDeny": [""],
        }


@pytest.fixture(scope="module")
def engine() -> Iterator[RemoteEngine]:
    with serving() as engine:
        yield engine


def far(engine: RemoteEngine, **fields: str) -> dict[str, object]:
    return {
        "name": "far",
        "kind": "openai",
        "base_url": engine.url,
        "model": "m",
        **fields,
    }


def spawner_of(daemon: DaemonProcess) -> int:
    [found] = [
        pid
        for pid in children_of(daemon.pid)
        if SPAWNER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return found


def children_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in children.split()]


@pytest.mark.slow
def test_supervision_of_a_worker_that_another_process_started(
    make_daemon: MakeDaemon, engine: RemoteEngine
):
    config = {"backend": [far(engine, api_key_env="FAR_KEY"), mock(tokens=["near"])]}
    environ = {"FAR_KEY": "sk-1", "OTHER_KEY": "sk-2"}
    daemon = make_daemon(config, environ=environ).start()
    assert daemon.ask(model="far")[-1]["type"] == "done"
    spawner = spawner_of(daemon)
    [worker] = children_of(spawner)
    for pid in (spawner, worker):
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"sk-" not in environment
        assert b"_KEY" not in environment
    # what the spawner has open is no worker's
    links = {str(each.readlink()) for each in Path(f"/proc/{worker}/fd").iterdir()}
    assert not any("pidfd" in each for each in links)

    def dies(connection: Connection) -> None:
        connection.sendall(ANSWER.partition(b"there")[0])
        os.kill(worker, signal.SIGKILL)

    engine.script = dies
    with daemon.connect() as connection:
        connection.send({**_request(), "model": "far"})
        connection.half_close()
        frames = connection.read_to_eof()
    engine.script = sends(ANSWER)
    assert [each["type"] for each in frames if each["type"] != "token"] == ["error"]
    assert frames[-1]["code"] == "backend_unavailable"
    [exited] = daemon.logged(msg="worker.exited")
    assert "killed by SIGKILL" in exited["reason"]
    assert daemon.ask(model="far")[-1]["type"] == "done"
    [again] = children_of(spawner)
    assert again != worker
    os.kill(spawner, signal.SIGKILL)
    assert eventually(lambda: daemon.ask(model="far")[-1]["type"] == "error")
    [error] = daemon.ask(model="far")
    assert error["code"] == "backend_unavailable"
    assert "it cannot be started" in error["message"]
    assert daemon.ask(model="mock")[-1]["type"] == "done"
    assert daemon.stop() == 0


def _request() -> dict[str, object]:
    return {
        "id": "a",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 20,
    }
