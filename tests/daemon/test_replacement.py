"""Backends that are replaced while requests wait, clients hang up, and loads fail."""

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.daemon.configuration import to_toml
from tests.daemon.harness import (
    Connection,
    DaemonProcess,
    Frame,
    Listener,
    MakeDaemon,
    content_of,
    eventually,
    generate,
    mock,
)

pytestmark = pytest.mark.slow

TABLES = {
    "memory": {"budget": 100 * 2**20},
    "admission": {"max_active": 2, "max_queued": 64},
}
N_TOKENS = 10_000
OLD = mock(tokens=["old"] * N_TOKENS, token_delay_ms=50, memory_mb=60)
"""One that leaves no room for another; an answer of all its tokens outlasts any test."""
NEW = mock(tokens=["new"], memory_mb=60)
BROKEN = {**NEW, "die_at_load": True}
TERMINAL = {"done", "error"}


def write(daemon: DaemonProcess, *backends: Frame, **tables: Frame) -> None:
    listen = {"directory": str(daemon.directory)}
    config = {"listen": listen, **TABLES, **tables, "backend": [*backends]}
    daemon.config_file.write_text(to_toml(config))


def states(daemon: DaemonProcess) -> dict[str, str]:
    with daemon.admin() as admin:
        backends = admin.order("backends")["backends"]
    return {each["name"]: each["state"] for each in backends}


def serve_old(
    make_daemon: MakeDaemon, *more: Frame
) -> tuple[DaemonProcess, Connection]:
    """Start a daemon with a request that ends when its client leaves."""
    daemon = make_daemon({**TABLES, "backend": [OLD, *more]}).start()
    running = daemon.connect()
    running.send(generate(id="running", max_tokens=N_TOKENS))
    assert running.frame()["type"] == "token"
    return daemon, running


def begin_reload(daemon: DaemonProcess) -> Listener:
    """Order a reload, and wait until it waits for the requests of the old backend."""
    operator = daemon.admin()
    operator.send({"command": "reload"})
    assert eventually(lambda: "unloaded" in states(daemon).values())
    return operator


def reply_of(operator: Listener) -> Frame:
    return next(frame for frame in operator if frame["type"] == "reply")


def end_of(connection: Connection) -> Frame:
    """Read one answer to its terminal frame, and see that nothing follows it."""
    frames = connection.frames()
    assert [each["type"] in TERMINAL for each in frames].count(True) == 1
    assert connection.ask({"messages": []})[0]["code"] == "invalid_request"
    return frames[-1]


def test_a_client_that_hangs_up_cancels_no_reload(make_daemon: MakeDaemon):
    daemon, running = serve_old(make_daemon)
    write(daemon, NEW)
    begin_reload(daemon).close()
    waiting = daemon.begin("waiting")
    running.close()
    assert content_of(waiting.frames()) == "new"
    assert daemon.logged(msg="config.reloaded")[0]["applied"] == [
        "backend mock: tokens",
        "backend mock: token_delay_ms",
    ]
    reply = daemon.admin().order("reload")
    assert (reply["ok"], reply["applied"]) == (True, [])
    assert eventually(lambda: len(daemon.logged(msg="config.reloaded")) == 2)


def test_all_who_wait_are_told_and_orders_meanwhile_are_one_more_reload(
    make_daemon: MakeDaemon,
):
    daemon, running = serve_old(make_daemon)
    write(daemon, NEW)
    first = begin_reload(daemon)
    later = [daemon.admin() for _ in range(3)]
    for each in later:
        each.send({"command": "reload"})
    for _ in range(50):
        daemon.send_signal(signal.SIGHUP)
    daemon.catch_up()
    write(daemon, {**NEW, "tokens": ["newer"]})  # read by those that were ordered later
    running.close()
    assert reply_of(first)["ok"]
    assert [reply_of(each)["applied"] for each in later] == [
        ["backend mock: tokens"]
    ] * 3
    assert content_of(daemon.ask()) == "newer"
    assert eventually(lambda: len(daemon.logged(msg="config.reloaded")) == 2)


@pytest.mark.parametrize("load", ["start", "demand"])
def test_a_replacement_that_does_not_load_is_undone_and_tried_again(
    make_daemon: MakeDaemon, load: str
):
    old = {**NEW, "tokens": ["old"], "load": load}
    daemon = make_daemon({**TABLES, "backend": [old]}).start()
    assert content_of(daemon.ask()) == "old"
    for _ in range(2):
        write(daemon, BROKEN)
        reply = daemon.admin().order("reload")
        assert (reply["ok"], reply["error"].partition(":")[0]) == (
            False,
            "backend mock",
        )
        assert content_of(daemon.ask()) == "old"
        assert states(daemon) == {"mock": "ready"}
    write(daemon, NEW)
    assert daemon.admin().order("reload")["ok"]
    assert content_of(daemon.ask()) == "new"
    assert eventually(lambda: len(daemon.worker_pids()) == 1)


@pytest.mark.parametrize("takes_its_place", ["renamed", "another"])
def test_what_takes_the_place_of_a_removed_backend_needs_no_room_beside_it(
    make_daemon: MakeDaemon, takes_its_place: str
):
    other = mock(name="other", memory_mb=10)
    daemon, running = serve_old(make_daemon, other)
    fresh = {"name": "fresh", "aliases": ["alias"]}
    new = {**OLD, **fresh} if takes_its_place == "renamed" else {**NEW, **fresh}
    write(daemon, other, new)
    operator = begin_reload(daemon)
    waiting = [daemon.connect() for _ in range(2)]
    for client, name in zip(waiting, ("fresh", "alias"), strict=True):
        client.send(generate(id=name, model=name, max_tokens=1))
    assert daemon.ask(model="other")[-1]["backend"] == "other"
    assert daemon.ask(model="mock")[-1]["code"] == "model_not_found"
    running.close()
    assert [end_of(each)["backend"] for each in waiting] == ["fresh"] * 2
    assert reply_of(operator)["ok"]
    assert states(daemon) == {"other": "ready", "fresh": "ready"}
    assert eventually(lambda: len(daemon.worker_pids()) == 2)
    told = [each.get("backend") for each in daemon.admin().until("ready")]
    assert "mock" not in told


def test_a_backend_for_which_nothing_makes_room_is_refused_with_the_numbers(
    make_daemon: MakeDaemon,
):
    daemon, running = serve_old(make_daemon)
    write(daemon, OLD, mock(name="large", memory_mb=50))
    reply = daemon.admin().order("reload")
    assert not reply["ok"]
    assert "large" in reply["error"]
    assert "MiB" in reply["error"]
    assert states(daemon) == {"mock": "ready"}
    assert running.frame()["type"] == "token"


# --- exactly one terminal frame ---------------------------------------------------------


def wait_many(daemon: DaemonProcess, n: int, **fields: Any) -> list[Connection]:
    clients = [daemon.connect() for _ in range(n)]
    for at, client in enumerate(clients):
        client.send(generate(id=f"waiting-{at}", progress=True, **fields))
    daemon.catch_up()
    return clients


def ends(clients: Sequence[Connection]) -> Counter[tuple[str, str]]:
    """Count how answers ended: the type, and the backend or the code."""
    last = [end_of(each) for each in clients]
    told = [(each["type"], each.get("backend") or each["code"]) for each in last]
    return Counter(told)


def test_a_reload_and_a_drain_at_once_end_each_request_once(make_daemon: MakeDaemon):
    daemon, running = serve_old(make_daemon)
    held = wait_many(daemon, 3, max_tokens=1)
    write(daemon, NEW)
    operator = begin_reload(daemon)
    fresh = wait_many(daemon, 3)
    other = daemon.admin()
    assert other.order("drain")["ok"]
    late = other.order("reload")
    assert (late["ok"], "draining" in late["error"]) == (False, True)
    running.close()
    for client, word in [(each, "old") for each in held] + [
        (each, "new") for each in fresh
    ]:
        frames = client.read_to_eof()
        assert [each["type"] for each in frames if each["type"] in TERMINAL] == ["done"]
        assert content_of(frames) == word
    assert reply_of(operator)["ok"]
    assert daemon.wait() == 0


def test_a_reload_that_the_drain_ends_is_told_once(make_daemon: MakeDaemon):
    daemon, running = serve_old(make_daemon)
    limits = {"drain_s": 0.1}
    write(daemon, OLD, limits=limits)
    assert daemon.admin().order("reload")["ok"]
    write(daemon, NEW, limits=limits)
    operator = begin_reload(daemon)
    [fresh] = wait_many(daemon, 1)
    assert daemon.admin().order("drain")["ok"]
    for client in (running, fresh):
        frames = client.read_to_eof()
        last = [each for each in frames if each["type"] in TERMINAL]
        assert [each["code"] for each in last] == ["backend_unavailable"]
    replies = [each for each in operator if each["type"] == "reply"]
    assert [(each["ok"], "draining" in each["error"]) for each in replies] == [
        (False, True)
    ]
    assert daemon.wait() == 0


def unload(daemon: DaemonProcess) -> None:
    assert daemon.admin().order("unload", backend="mock")["ok"]


def remove(daemon: DaemonProcess) -> None:
    write(daemon, mock(name="other"))
    assert daemon.admin().order("reload")["ok"]


def change(daemon: DaemonProcess) -> None:
    write(daemon, mock(name="other"), {**NEW, "load": "demand"})
    assert daemon.admin().order("reload")["ok"]


@pytest.mark.parametrize("meanwhile", [unload, remove, change])
def test_requests_that_wait_for_a_load_end_once_whatever_is_ordered_meanwhile(
    make_daemon: MakeDaemon, meanwhile: Callable[[DaemonProcess], None]
):
    slow = {**NEW, "load": "demand", "load_delay_ms": 300, "prepare_delay_ms": 20}
    other = mock(name="other")
    daemon = make_daemon({**TABLES, "backend": [other, slow]}).start()
    clients = wait_many(daemon, 8, model="mock")
    assert eventually(lambda: states(daemon)["mock"] in {"loading", "ready"})
    admin = daemon.admin()
    assert eventually(lambda: len(admin.order("requests")["requests"]) == len(clients))
    meanwhile(daemon)
    assert ends(clients) == {("done", "mock"): 8}
    assert daemon.ask(model="other")[-1]["backend"] == "other"


def test_an_unload_during_a_swap_is_answered_and_no_request_fails(
    make_daemon: MakeDaemon,
):
    old = {**OLD, "load": "demand"}
    daemon = make_daemon({**TABLES, "backend": [old]}).start()
    running = daemon.connect()
    running.send(generate(id="running", max_tokens=20))
    assert running.frame()["type"] == "token"
    write(daemon, {**NEW, "load": "demand"})
    assert daemon.admin().order("reload")["ok"]
    waiting = wait_many(daemon, 4)
    assert daemon.admin().order("unload", backend="mock")["ok"]
    assert ends([running, *waiting]) == {("done", "mock"): 5}
    assert content_of(daemon.ask()) == "new"


@pytest.mark.long
def test_four_hundred_requests_wait_for_a_reload_without_room(make_daemon: MakeDaemon):
    tables = {"admission": {"max_active": 2, "max_queued": 1000}}
    old = {**NEW, "tokens": ["old"]}
    daemon = make_daemon({**TABLES, **tables, "backend": [OLD]}).start()
    running = [daemon.connect() for _ in range(2)]
    for each in running:
        each.send(generate(id="running", max_tokens=N_TOKENS))
        assert each.frame()["type"] == "token"
    before = wait_many(daemon, 200, max_tokens=1)
    write(daemon, old, **tables)
    operator = begin_reload(daemon)
    after = wait_many(daemon, 200, max_tokens=1)
    for each in running:
        each.close()
    assert ends([*before, *after]) == {("done", "mock"): 400}
    assert reply_of(operator)["ok"]
