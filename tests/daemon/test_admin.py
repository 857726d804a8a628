import signal
from collections.abc import Iterator

import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, MakeDaemon, eventually, generate, mock

pytestmark = pytest.mark.slow

ENDLESS = mock(tokens=["x"] * 10_000, token_delay_ms=10)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    admission = {"max_active": 1, "max_queued": 5}
    with daemons() as make:
        yield make({"backend": [ENDLESS], "admission": admission}).start()


def test_requests_that_run_and_wait_are_listed_and_cancelled(daemon: DaemonProcess):
    running, waiting = daemon.begin("a"), daemon.begin("b")
    running.frame()
    operator = daemon.admin()
    first, second = operator.order("requests")["requests"]
    assert (first["id"], first["phase"], first["socket"]) == (
        "a",
        "running",
        "infer.sock",
    )
    assert (second["id"], second["phase"], second["position"]) == ("b", "queued", 1)
    assert first["output_tokens"] >= 1
    assert "position" not in first
    for request_id, client in (("b", waiting), ("a", running)):
        reply = operator.order("cancel", id=request_id)
        assert (reply["ok"], reply["cancelled"]) == (True, 1)
        assert client.frames()[-1]["stop_reason"] == "cancelled"
    assert operator.order("requests")["requests"] == []
    reply = operator.order("cancel", id="a")
    assert (reply["ok"], reply["error"]) == (False, 'no request has the id "a"')


def test_backends_are_listed_with_what_they_can(daemon: DaemonProcess):
    [backend] = daemon.admin().order("backends")["backends"]
    assert (backend["name"], backend["ready"]) == ("mock", True)
    assert backend["capabilities"]["v2"] is True


def test_metrics_count_what_was_served(daemon: DaemonProcess):
    operator = daemon.admin()
    ended = 'inferd_requests_total{outcome="length",socket="infer.sock"}'

    def n_ended():
        lines = operator.order("metrics")["text"].splitlines()
        counts = [line.split()[-1] for line in lines if line.startswith(ended)]
        return float(counts[0]) if counts else 0.0

    before = n_ended()
    daemon.ask(max_tokens=1)
    assert eventually(lambda: n_ended() == before + 1)


def test_metrics_count_the_tasks_that_live(daemon: DaemonProcess):
    daemon.leave()
    operator = daemon.admin()

    def n_tasks():
        lines = operator.order("metrics")["text"].splitlines()
        [count] = [line.split()[1] for line in lines if line.startswith("inferd_tasks")]
        return float(count)

    with daemon.connect() as client:
        assert client.ask(generate(max_tokens=1))[-1]["type"] == "done"
        while_connected = n_tasks()
    assert eventually(lambda: 5 < n_tasks() < while_connected)


def test_what_is_no_command_is_refused_and_events_go_on(daemon: DaemonProcess):
    operator = daemon.admin()
    operator.until("ready")
    reply = operator.order("nonsense")
    assert not reply["ok"]
    assert "drain" in reply["error"]
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"
    daemon.kill_worker()
    assert operator.until("ready")


def test_a_drain_that_is_ordered_lets_what_runs_end(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [ENDLESS]}).start()
    running = daemon.begin("running", max_tokens=20)
    operator = daemon.admin()
    operator.until("ready")
    assert operator.order("drain")["ok"]
    assert operator.until("draining")
    assert running.read_to_eof()[-1]["usage"]["completion_tokens"] == 20
    assert operator.line() is None
    assert daemon.wait() == 0


def test_a_signal_after_a_drain_that_was_ordered_is_the_first_one(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": [ENDLESS]}).start()
    running = daemon.begin("running", max_tokens=30)
    assert daemon.admin().order("drain")["ok"]
    daemon.send_signal(signal.SIGTERM)
    assert running.read_to_eof()[-1]["usage"]["completion_tokens"] == 30
    assert daemon.wait() == 0


def test_an_idle_daemon_that_is_told_to_drain_says_so_and_ends(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    assert daemon.ask()[-1]["type"] == "done"
    operator = daemon.admin()
    operator.send({"command": "drain"})
    frames = operator.read_to_eof()
    words = [frame.get("command", frame.get("status")) for frame in frames]
    assert words == ["capabilities", "ready", "drain", "draining"]
    assert daemon.wait() == 0
