import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from inferd.server.telemetry.sd_notify import Notifier
from inferd.wire.status import CapabilitiesFrame, LifecycleFrame

READY = LifecycleFrame(status="ready")
CAPABILITIES = CapabilitiesFrame(
    backend="chat",
    v2=False,
    vision=False,
    audio=False,
    tools=False,
    thinking=False,
    embed=False,
    generate=True,
    rerank=False,
    accelerator="cpu",
    gpu_layers=0,
    wire_version=1,
    daemon_version="1",
)


@contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(address)
        sock.setblocking(False)
        yield sock


def heard(sock: socket.socket) -> list[str]:
    messages: list[str] = []
    try:
        while True:
            messages.append(sock.recv(4096).decode())
    except BlockingIOError:
        return messages


def test_ready_and_stopping_are_notified(short_dir):
    with manager(f"{short_dir}/notify") as sock:
        notifier = Notifier({"NOTIFY_SOCKET": f"{short_dir}/notify"})
        notifier.ready()
        notifier.stopping()
        assert heard(sock) == ["READY=1", "STOPPING=1\nSTATUS=draining"]


def test_an_address_may_be_abstract():
    name = f"inferd-test-{os.getpid()}"
    with manager(f"\0{name}") as sock:
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert heard(sock) == ["READY=1"]


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}])
def test_without_a_manager_nothing_is_sent(environ, monkeypatch):
    opened: list[tuple[int, ...]] = []
    monkeypatch.setattr(socket, "socket", lambda *kind: opened.append(kind))
    Notifier(environ).ready()
    assert opened == []


def test_a_missing_manager_is_no_error(short_dir):
    Notifier({"NOTIFY_SOCKET": f"{short_dir}/nobody"}).ready()


def test_a_manager_that_does_not_read_blocks_nothing(short_dir):
    with manager(f"{short_dir}/notify") as sock:
        notifier = Notifier({"NOTIFY_SOCKET": f"{short_dir}/notify"})
        for _ in range(2000):
            notifier.ready()
        assert 0 < len(heard(sock)) < 2000  # the rest found no room, and nobody waited


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (READY, ["STATUS=ready"]),
        (LifecycleFrame(status="starting"), []),
        (LifecycleFrame(status="draining"), []),
        (CAPABILITIES, []),
        (
            LifecycleFrame(status="restarting", phase="backoff", backend="chat"),
            ["STATUS=restarting chat"],
        ),
    ],
)
def test_published_frames_are_notified(frame, words, short_dir):
    with manager(f"{short_dir}/notify") as sock:
        Notifier({"NOTIFY_SOCKET": f"{short_dir}/notify"}).follow(frame)
        assert heard(sock) == words


def test_loading_extends_the_start_timeout_by_the_silence_that_is_allowed(short_dir):
    loading = LifecycleFrame(status="loading_model", phase="mmap", backend="chat")
    with manager(f"{short_dir}/notify") as sock:
        environ = {"NOTIFY_SOCKET": f"{short_dir}/notify"}
        Notifier(environ, load_silence_s=1234.5).follow(loading)
        [message] = heard(sock)
    status, extension = message.splitlines()
    assert status == "STATUS=loading: mmap"
    assert extension == "EXTEND_TIMEOUT_USEC=1234500000"


@pytest.mark.parametrize(
    ("watchdog_pid", "n_fed"),
    [(None, 5), (str(os.getpid()), 5), ("1", 0)],
    ids=["none", "own", "other"],
)
async def test_the_watchdog_is_fed_twice_as_often_as_it_asks(
    watchdog_pid, n_fed, short_dir, autojump_clock
):
    environ = {"NOTIFY_SOCKET": f"{short_dir}/notify", "WATCHDOG_USEC": "30000000"}
    if watchdog_pid is not None:
        environ["WATCHDOG_PID"] = watchdog_pid
    with manager(f"{short_dir}/notify") as sock:
        with trio.move_on_after(61):
            await Notifier(environ).feed_watchdog()
        assert heard(sock) == ["WATCHDOG=1"] * n_fed


async def test_without_a_watchdog_no_keep_alive_is_sent(autojump_clock):
    await Notifier({}).feed_watchdog()
    assert trio.current_time() == 0


def test_a_reload_is_notified(short_dir):
    with manager(f"{short_dir}/notify") as sock:
        before_us = time.monotonic_ns() // 1000
        Notifier({"NOTIFY_SOCKET": f"{short_dir}/notify"}).reloading()
        [message] = heard(sock)
    first, second = message.split("\n")
    name, _, at_us = second.partition("=")
    assert (first, name) == ("RELOADING=1", "MONOTONIC_USEC")
    assert before_us <= int(at_us) <= time.monotonic_ns() // 1000
