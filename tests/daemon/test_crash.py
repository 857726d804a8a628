import json
import signal
from collections.abc import Iterator

import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import (
    DaemonProcess,
    Listener,
    MakeDaemon,
    blocks,
    eventually,
    generate,
    mock,
)

pytestmark = pytest.mark.slow

ENDLESS = mock(tokens=["x"] * 10_000, token_delay_ms=20)
ONE_AT_A_TIME = {"max_active": 1, "max_queued": 1}


def gone(request_id, how):
    return {
        "type": "error",
        "id": request_id,
        "code": "backend_unavailable",
        "message": f"the worker is gone: {how}",
    }


@pytest.fixture(scope="module")
def one_daemon_for_all() -> Iterator[DaemonProcess]:
    with daemons() as make:
        yield make({"backend": [ENDLESS], "admission": ONE_AT_A_TIME}).start()


@pytest.fixture
def daemon(one_daemon_for_all: DaemonProcess) -> DaemonProcess:
    """One whose worker has served, so that it would be replaced at once."""
    one_daemon_for_all.leave()
    assert one_daemon_for_all.ask(max_tokens=1)[-1]["type"] == "done"
    return one_daemon_for_all


def test_a_killed_worker_costs_its_request_one_error_and_nobody_else_anything(
    daemon: DaemonProcess,
):
    running = daemon.begin("running")
    waiting = daemon.begin("waiting", max_tokens=2)
    running.frame()
    daemon.kill_worker()
    assert running.frames()[-1] == gone("running", "killed by SIGKILL")
    assert waiting.frames()[-1]["stop_reason"] == "length"
    assert running.ask(generate(id="next", max_tokens=1))[-1]["type"] == "done"
    assert daemon.is_running


def test_listeners_hear_why_a_worker_is_gone_and_when_it_is_back(
    daemon: DaemonProcess,
):
    listener = daemon.admin()
    listener.until("ready")
    daemon.kill_worker(signal.SIGSEGV)
    died, loading, capabilities, ready = listener.until("ready")
    assert died == {
        "id": "admin",
        "type": "status",
        "status": "restarting",
        "phase": "backoff",
        "backend": "mock",
        "reason": "killed by SIGSEGV",
        "retry_in_s": 0,
    }
    assert loading["status"] == "restarting"
    assert loading["phase"] == "checking_local"
    assert capabilities["status"] == "capabilities"
    assert ready["status"] == "ready"


def test_a_killed_worker_ends_a_v2_stream_with_one_error(daemon: DaemonProcess):
    with daemon.connect("infer.v2.sock") as client:
        client.send(blocks(id="running"))
        assert client.frame()["block"] == {"type": "text", "delta": "x"}
        daemon.kill_worker()
        *pieces, error = client.frames()
        assert {piece["type"] for piece in pieces} <= {"frame"}
        assert error == gone("running", "killed by SIGKILL")
        assert client.ask(blocks(max_tokens=1))[-1]["type"] == "done"


@pytest.mark.parametrize(
    ("leaf", "request_of"),
    [
        ("infer.embed.sock", {"input": ["a"]}),
        ("infer.rerank.sock", {"query": "q", "documents": ["a"]}),
    ],
)
def test_a_killed_worker_ends_vectors_and_scores_with_one_error(
    make_daemon: MakeDaemon, leaf, request_of
):
    backend = mock(token_delay_ms=60_000)
    daemon = make_daemon({"backend": [backend]}).start()
    with daemon.connect(leaf) as client, daemon.admin() as operator:
        client.send({"id": "r", **request_of})
        assert eventually(lambda: phases(operator) == ["running"])
        daemon.kill_worker()
        assert client.frames() == [gone("r", "killed by SIGKILL")]
        assert phases(operator) == []


def phases(operator: Listener):
    return [each["phase"] for each in operator.order("requests")["requests"]]


def test_the_inference_socket_stays_and_requests_wait_while_a_worker_restarts(
    daemon: DaemonProcess,
):
    inode = daemon.infer_sock.stat().st_ino
    listener = daemon.admin()
    listener.until("ready")
    daemon.kill_worker()
    listener.until("restarting")
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"
    assert daemon.infer_sock.stat().st_ino == inode


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT"])
def test_a_worker_that_dies_by_any_signal_is_replaced(make_daemon: MakeDaemon, name):
    backend = mock(tokens=["one", "two"], die_after_tokens=2, die_by=name)
    daemon = make_daemon({"backend": [backend]}).start()
    *tokens, error = daemon.ask(id="a")
    assert [token["content"] for token in tokens] == ["one", "two"]
    assert error == gone("a", f"killed by {name}")
    assert daemon.ask(id="b", max_tokens=1)[-1]["content"] == "one"


def test_a_worker_that_falls_silent_is_killed_as_hung(make_daemon: MakeDaemon):
    limits = {"worker_silence_s": 1}
    daemon = make_daemon({"backend": [ENDLESS], "limits": limits}).start()
    running = daemon.begin("running")
    running.frame()
    daemon.kill_worker(signal.SIGSTOP)
    assert running.frames()[-1] == gone("running", "hung: no message for 1 s")
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"
    assert len(daemon.worker_pids()) == 1


def test_a_healthy_worker_with_nothing_to_do_is_not_taken_for_hung(
    make_daemon: MakeDaemon,
):
    def is_left_alone(silence_s: float) -> bool:
        limits = {"worker_silence_s": silence_s}
        daemon = make_daemon({"backend": [mock()], "limits": limits}).start()
        listener = daemon.admin(timeout_s=1.5 * silence_s)
        listener.until("ready")
        try:
            line = listener.line()
        except TimeoutError:
            return True
        assert line is not None
        assert json.loads(line)["reason"].startswith("hung: ")
        return False

    # on a busy machine a healthy worker may get no processor for a second
    assert any(map(is_left_alone, (1, 5, 20)))


def test_the_breaker_opens_after_deaths_in_vain_and_closes_for_one_more_start(
    make_daemon: MakeDaemon,
):
    backend = mock(tokens=["one", "two"], die_after_tokens=2)

    def refuses_while_it_is_open(open_s: float) -> bool:
        limits = {"breaker_deaths": 2, "breaker_open_s": open_s}
        daemon = make_daemon({"backend": [backend], "limits": limits}).start()
        listener = daemon.admin()
        assert daemon.ask(id="a")[-1] == gone("a", "killed by SIGKILL")
        assert daemon.ask(id="b")[-1] == gone("b", "killed by SIGKILL")
        broken = listener.until("restarting", phase="breaker_open")[-1]
        assert (broken["reason"], broken["retry_in_s"]) == ("killed by SIGKILL", open_s)
        last = daemon.ask(id="c", max_tokens=1)[-1]
        listener.until("ready")
        assert daemon.ask(id="d", max_tokens=1)[-1]["type"] == "done"
        if last["type"] == "error":
            assert last["message"] == "backend not ready: killed by SIGKILL"
            assert last["code"] == "backend_unavailable"
        return bool(last["type"] == "error")

    # on a busy machine a short time is over before a request is read
    assert any(map(refuses_while_it_is_open, (1, 5, 20)))


def test_requests_that_wait_are_refused_when_the_breaker_opens(
    make_daemon: MakeDaemon,
):
    backend = mock(tokens=["x"] * 100, token_delay_ms=20)
    limits = {"breaker_deaths": 1, "breaker_open_s": 30}
    daemon = make_daemon(
        {"backend": [backend], "admission": ONE_AT_A_TIME, "limits": limits}
    ).start()
    running, waiting = daemon.begin("running"), daemon.begin("waiting")
    daemon.kill_worker()
    assert running.frames()[-1] == gone("running", "killed by SIGKILL")
    [refusal] = waiting.frames()
    assert refusal["code"] == "backend_unavailable"
    assert refusal["message"] == "backend not ready: killed by SIGKILL"


def test_deaths_after_a_served_request_open_no_breaker(make_daemon: MakeDaemon):
    limits = {"breaker_deaths": 1, "breaker_open_s": 30}
    daemon = make_daemon({"backend": [mock()], "limits": limits}).start()
    for _ in range(2):
        assert daemon.ask()[-1]["type"] == "done"
        daemon.kill_worker()
        assert daemon.ask()[-1]["type"] == "done"


def test_workers_do_not_outlive_a_daemon_that_is_killed(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [ENDLESS]}).start()
    daemon.begin("running").frame()
    assert len(daemon.worker_pids()) == 1
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    assert daemon.workers_end()
