import signal
import threading
from typing import Any

import pytest

from tests.daemon.configuration import to_toml
from tests.daemon.harness import (
    Connection,
    DaemonProcess,
    Frame,
    MakeDaemon,
    content_of,
    eventually,
    generate,
    mock,
)

pytestmark = pytest.mark.slow

ENDLESS = mock(tokens=["x"] * 10_000, token_delay_ms=10)


def write_limit(daemon: DaemonProcess, line: str) -> None:
    """Put a line behind what is configured: the last table is ``[limits]``."""
    text = daemon.config_file.read_text().partition("# changed\n")[0]
    daemon.config_file.write_text(f"{text}# changed\n{line}\n")


def start(make_daemon: MakeDaemon, **limits: Any) -> DaemonProcess:
    return make_daemon(
        {"listen": {}, "backend": [ENDLESS], "limits": {"drain_s": 15, **limits}}
    ).start()


def test_a_reload_that_is_ordered_touches_nothing_that_runs(make_daemon: MakeDaemon):
    daemon = start(make_daemon)
    running = daemon.begin("running", max_tokens=30)
    write_limit(daemon, "max_connections = 1\nbreaker_deaths = 9")
    reply = daemon.admin().order("reload")
    assert reply["applied"] == ["limits.max_connections"]
    assert reply["needs_restart"] == ["limits.breaker_deaths"]
    [frame] = daemon.connect().read_to_eof()
    assert (frame["id"], frame["code"]) == ("", "queue_full")
    assert running.frames()[-1]["usage"]["completion_tokens"] == 30


def test_a_configuration_that_is_wrong_is_refused_with_its_key(
    make_daemon: MakeDaemon,
):
    daemon = start(make_daemon)
    write_limit(daemon, "idle_s = -1")
    reply = daemon.admin().order("reload")
    assert not reply["ok"]
    assert reply["error"].startswith(f"{daemon.config_file}: limits.idle_s = -1: ")
    daemon.config_file.unlink()
    assert "configuration" in daemon.admin().order("reload")["error"]
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"


def test_a_hang_up_is_a_reload(make_daemon: MakeDaemon):
    daemon = start(make_daemon)
    running = daemon.begin("running", max_tokens=30)
    write_limit(daemon, "idle_s = 5")
    daemon.send_signal(signal.SIGHUP)
    assert daemon.logged(msg="config.reloaded")[0]["applied"] == ["limits.idle_s"]
    write_limit(daemon, "idle_s = 0")
    daemon.send_signal(signal.SIGHUP)
    assert daemon.logged(msg="config.refused")
    assert running.frames()[-1]["usage"]["completion_tokens"] == 30


@pytest.mark.parametrize("options", [(), ("--log-level", "info")])
def test_the_level_of_the_log_may_change_unless_the_command_line_has_one(
    make_daemon: MakeDaemon, options
):
    daemon = make_daemon({"log": {"level": "error"}, "backend": [mock()]})
    daemon.options = options
    client = daemon.start().connect()
    client.ask(generate(id="before"))
    text = daemon.config_file.read_text().replace('"error"', '"info"')
    daemon.config_file.write_text(f"{text}[limits]\nidle_s = 9\n")
    applied = daemon.admin().order("reload")["applied"]
    client.ask(generate(id="after"))
    client.ask({"messages": "no list"})
    assert daemon.stop() == 0
    assert daemon.logged(msg="request_refused")
    ended = [each["req_id"] for each in daemon.logged(msg="request_done")]
    if options:
        assert (applied, ended) == (["limits.idle_s"], ["before", "after"])
    else:
        assert (applied, ended) == (["limits.idle_s", "log.level"], ["after"])


def test_the_time_to_drain_may_change_while_it_runs(make_daemon: MakeDaemon):
    daemon = start(make_daemon)
    running = daemon.begin("running")
    running.frame()
    text = daemon.config_file.read_text().replace("drain_s = 15", "drain_s = 0.2")
    daemon.config_file.write_text(text)
    operator = daemon.admin()
    assert operator.order("reload")["applied"] == ["limits.drain_s"]
    assert operator.order("drain")["ok"]
    assert running.read_to_eof()[-1]["code"] == "backend_unavailable"
    assert daemon.wait() == 0


# --- backends ---------------------------------------------------------------------------


def write_backends(daemon: DaemonProcess, *backends: Frame, **tables: Frame) -> None:
    listen = {"directory": str(daemon.directory)}
    config = {"listen": listen, **tables, "backend": [*backends]}
    daemon.config_file.write_text(to_toml(config))


@pytest.mark.parametrize("memory_mb", [40, 60])
def test_a_backend_that_differs_is_replaced_while_clients_ask(
    make_daemon: MakeDaemon, memory_mb: int
):
    tables = {
        "memory": {"budget": 100 * 2**20},
        "admission": {"max_active": 2, "max_queued": 64},
    }
    tokens = ["old"] * 5
    old = mock(tokens=tokens, token_delay_ms=5, memory_mb=memory_mb)
    daemon = make_daemon({**tables, "backend": [old]}).start()
    ends: list[tuple[str, str]] = []
    is_over = threading.Event()

    def ask(client: Connection) -> None:
        while not is_over.is_set():
            frames = client.ask(generate())
            ends.append((frames[-1]["type"], content_of(frames)))

    threads = [
        threading.Thread(target=ask, args=(daemon.connect(),)) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    try:
        write_backends(daemon, {**old, "tokens": ["new"]}, **tables)
        reply = daemon.admin().order("reload")
        assert eventually(lambda: ("done", "new") in ends)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert (reply["ok"], reply["applied"]) == (True, ["backend mock: tokens"])
    assert {*ends} == {("done", "oldoldoldoldold"), ("done", "new")}
    assert ends[-1] == ("done", "new")
    assert eventually(lambda: len(daemon.worker_pids()) == 1)


def test_backends_are_added_and_removed(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    eyes = mock(name="eyes", vision=True)
    write_backends(daemon, eyes, mock())
    reply = daemon.admin().order("reload")
    assert (reply["ok"], reply["applied"]) == (True, ["backend eyes: added"])
    assert daemon.ask()[-1]["backend"] == "eyes"
    write_backends(daemon, eyes)
    assert daemon.admin().order("reload")["ok"]
    listed = daemon.admin().order("backends")["backends"]
    assert [(each["name"], each["state"]) for each in listed] == [("eyes", "ready")]
    assert eventually(lambda: len(daemon.worker_pids()) == 1)
    assert daemon.ask()[-1]["backend"] == "eyes"
    for word in ("one", "two"):
        write_backends(daemon, {**eyes, "tokens": [word]})
        assert daemon.admin().order("reload")["ok"]
        assert content_of(daemon.ask()) == word
        assert eventually(lambda: len(daemon.worker_pids()) == 1)


def test_a_backend_that_does_not_load_leaves_the_one_before(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    write_backends(daemon, mock(die_at_load=True))
    reply = daemon.admin().order("reload")
    assert not reply["ok"]
    assert "backend mock: " in reply["error"]
    assert daemon.admin().order("reload")["error"] == reply["error"]
    assert daemon.ask()[-1]["type"] == "done"
    table = {"name": "mock", "kind": "llamacpp", "model": "/nowhere.gguf"}
    write_backends(daemon, table)
    reply = daemon.admin().order("reload")
    assert "/nowhere.gguf" in reply["error"]
    assert daemon.ask()[-1]["type"] == "done"


def test_a_replacement_that_does_not_load_leaves_the_status(make_daemon: MakeDaemon):
    limits = {"breaker_deaths": 1, "breaker_open_s": 3600}
    daemon = make_daemon({"backend": [mock()], "limits": limits}).start()
    for fresh in (mock(die_at_load=True), mock(name="other", die_at_load=True)):
        write_backends(daemon, mock() | fresh, limits=limits)
        assert not daemon.admin().order("reload")["ok"]
        told = (each["status"] for each in daemon.admin())
        assert next(each for each in told if each != "capabilities") == "ready"


def test_nothing_is_removed_unless_what_replaces_it_loads(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    write_backends(daemon, mock(name="other", die_at_load=True))
    assert not daemon.admin().order("reload")["ok"]
    assert daemon.ask()[-1]["backend"] == "mock"
    write_backends(daemon, mock(name="other"))
    assert daemon.admin().order("reload")["ok"]
    assert daemon.ask()[-1]["backend"] == "other"
