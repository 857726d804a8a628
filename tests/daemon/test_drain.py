import signal
from contextlib import suppress

import pytest

from tests.daemon.harness import MakeDaemon, generate, mock, to_line

pytestmark = pytest.mark.slow

ENDLESS = mock(tokens=["x"] * 10_000, token_delay_ms=10)
ONE_AT_A_TIME = {"max_active": 1, "max_queued": 1}


def test_what_runs_and_what_waits_is_finished_and_nothing_new_is_taken(
    make_daemon: MakeDaemon,
):
    limits = {"drain_s": 60}
    daemon = make_daemon(
        {"backend": [ENDLESS], "admission": ONE_AT_A_TIME, "limits": limits}
    ).start()
    listener, idle = daemon.admin(), daemon.connect()
    listener.until("ready")
    running = daemon.begin("running", max_tokens=50)
    waiting = daemon.begin("waiting", max_tokens=2)
    daemon.send_signal(signal.SIGTERM)
    idle.read_eof()
    assert not daemon.infer_sock.exists()
    assert daemon.admin().frame()["status"] == "capabilities"
    assert running.read_to_eof()[-1]["usage"]["completion_tokens"] == 50
    assert waiting.read_to_eof()[-1]["usage"]["completion_tokens"] == 2
    assert [frame["status"] for frame in listener] == ["draining"]
    assert daemon.wait() == 0
    assert [path.name for path in daemon.directory.iterdir()] == ["inferd.lock"]


def test_every_request_sent_ahead_is_refused_once_the_daemon_drains(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": [ENDLESS]}).start()
    connection = daemon.connect()
    late = [generate(id=f"late{n}") for n in range(3)]
    ahead = [generate(id="running", max_tokens=20), *late]
    connection.send_raw(b"".join(map(to_line, ahead)))
    connection.frame()
    daemon.send_signal(signal.SIGTERM)
    *answer, _, _, _ = frames = connection.read_to_eof()
    assert {frame["id"] for frame in answer} == {"running"}
    assert frames[-3:] == [
        {
            "type": "error",
            "id": f"late{n}",
            "code": "backend_unavailable",
            "message": "admission closed: the daemon is draining",
        }
        for n in range(3)
    ]


def test_every_request_that_could_be_sent_during_a_drain_is_refused(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": [ENDLESS]}).start()
    busy, listener = daemon.begin("running", max_tokens=50), daemon.admin()
    busy.frame()
    daemon.send_signal(signal.SIGTERM)
    listener.until("draining")
    sent, frames = ["running"], []
    with pytest.raises(BrokenPipeError):
        while True:
            busy.send(generate(id=f"late{len(sent)}"))
            sent.append(f"late{len(sent)}")
            frames.append(busy.frame())
    frames += busy.read_to_eof()
    ends = [(each["id"], each["type"]) for each in frames if each["type"] != "token"]
    assert ends == [("running", "done"), *[(late, "error") for late in sent[1:]]]
    assert daemon.wait() == 0


def test_a_request_that_takes_too_long_gets_one_error(make_daemon: MakeDaemon):
    limits = {"drain_s": 0.3}
    daemon = make_daemon(
        {"backend": [ENDLESS], "admission": ONE_AT_A_TIME, "limits": limits}
    ).start()
    running, waiting = daemon.begin("running"), daemon.begin("waiting")
    assert daemon.stop() == 0
    *tokens, last = running.read_to_eof()
    assert {frame["type"] for frame in tokens} == {"token"}
    assert last["id"] == "running"
    assert last["code"] == "backend_unavailable"
    [refusal] = waiting.read_to_eof()
    assert refusal["id"] == "waiting"
    assert refusal["code"] == "backend_unavailable"


def test_clients_that_come_as_the_daemon_drains_do_not_hold_it_up(
    make_daemon: MakeDaemon,
):
    limits = {"drain_s": 600}
    daemon = make_daemon({"backend": [mock()], "limits": limits}).start()
    connections = [daemon.connect() for _ in range(50)]
    daemon.send_signal(signal.SIGTERM)
    with suppress(OSError):
        while len(connections) < 1000:
            connections.append(daemon.connect())
    assert daemon.wait() == 0
    for connection in connections:
        connection.read_eof()


def test_who_had_connected_when_the_daemon_was_told_to_end_is_answered(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": [mock()], "admission": {"max_queued": 99}}).start()
    daemon.send_signal(signal.SIGSTOP)
    clients = [daemon.connect() for _ in range(50)]
    for client in clients:
        client.send(generate(id="r", max_tokens=1))
    daemon.send_signal(signal.SIGTERM)
    daemon.send_signal(signal.SIGCONT)
    for client in clients:
        assert client.read_to_eof()[-1]["type"] == "done"
    assert daemon.wait() == 0


def test_asked_twice_the_daemon_ends_at_once_and_its_clients_are_told(
    make_daemon: MakeDaemon,
):
    config = {"backend": [ENDLESS], "limits": {"drain_s": 600}}
    daemon = make_daemon(config).start()
    running = daemon.begin("running")
    running.frame()
    listener = daemon.admin()
    daemon.send_signal(signal.SIGINT)
    listener.until("draining")
    daemon.send_signal(signal.SIGINT)
    assert daemon.wait() == 0
    assert running.read_to_eof()[-1]["code"] == "backend_unavailable"


def test_a_drain_while_a_worker_restarts_ends_in_time(make_daemon: MakeDaemon):
    backend = mock(tokens=["one", "two"], die_after_tokens=1)
    limits = {"breaker_deaths": 9, "drain_s": 0.1}
    daemon = make_daemon({"backend": [backend], "limits": limits}).start()
    listener = daemon.admin()
    for _ in range(5):
        daemon.ask()
    listener.until("restarting", retry_in_s=1.6)
    waiting = daemon.begin("waiting")
    assert daemon.stop() == 0
    [refusal] = waiting.read_to_eof()
    assert refusal["code"] == "backend_unavailable"
