from collections.abc import Iterator

import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, MakeDaemon, generate, mock

pytestmark = pytest.mark.slow

ENDLESS = mock(tokens=["x"] * 10_000, token_delay_ms=10)
FULL = {"type": "error", "code": "queue_full", "message": "queue full"}


@pytest.fixture(scope="module")
def daemon_with_two_places() -> Iterator[DaemonProcess]:
    admission = {"max_active": 1, "max_queued": 1}
    with daemons() as make:
        yield make({"backend": [ENDLESS], "admission": admission}).start()


@pytest.fixture
def daemon(daemon_with_two_places: DaemonProcess) -> DaemonProcess:
    daemon_with_two_places.leave()
    return daemon_with_two_places


def test_a_request_over_both_bounds_is_refused_at_once_and_the_connection_kept(
    daemon: DaemonProcess,
):
    running = daemon.begin("running", max_tokens=100)
    waiting = daemon.begin("waiting", max_tokens=1)
    with daemon.connect() as third:
        for request_id in ("third", "again"):
            [refusal] = third.ask(generate(id=request_id))
            assert refusal.pop("retry_after_ms", 10) >= 10
            assert refusal == {**FULL, "id": request_id, "queue_depth": 1}
        assert running.frames()[-1]["usage"]["completion_tokens"] == 100
        assert waiting.frames()[-1]["id"] == "waiting"
        assert third.ask(generate(max_tokens=1))[-1]["type"] == "done"


def test_what_waits_is_bounded_in_bytes(make_daemon: MakeDaemon):
    admission = {"max_active": 1, "max_queued_bytes": 1000}
    daemon = make_daemon({"backend": [ENDLESS], "admission": admission}).start()
    daemon.begin("running")
    daemon.begin("waiting")
    assert daemon.ask("x" * 1000)[-1]["code"] == "queue_full"
    waiting = daemon.begin("small", progress=True)
    assert waiting.frame() == {
        "type": "status",
        "id": "small",
        "status": "queued",
        "position": 2,
    }


def test_every_place_is_free_again_once_all_is_answered(daemon: DaemonProcess):
    for _ in range(2):
        running = daemon.begin("running", max_tokens=100)
        waiting = daemon.begin("waiting", max_tokens=1)
        assert daemon.ask()[-1]["code"] == "queue_full"
        assert running.frames()[-1]["type"] == "done"
        assert waiting.frames()[-1]["type"] == "done"


def test_two_requests_stream_at_once_where_two_may(make_daemon: MakeDaemon):
    admission = {"max_active": 2, "max_queued": 0}
    daemon = make_daemon({"backend": [ENDLESS], "admission": admission}).start()
    one, two = daemon.begin("one"), daemon.begin("two")
    for _ in range(3):
        assert one.frame()["id"] == "one"
        assert two.frame()["id"] == "two"
    assert daemon.ask()[-1]["code"] == "queue_full"


def test_a_client_that_leaves_mid_stream_frees_its_permit(daemon: DaemonProcess):
    leaver = daemon.begin("leaver")
    leaver.frame()
    leaver.close()
    assert daemon.ask(max_tokens=2)[-1]["stop_reason"] == "length"


def test_a_client_that_leaves_while_it_waits_frees_its_place(daemon: DaemonProcess):
    running = daemon.begin("running", max_tokens=50)
    leaver = daemon.begin("leaver")
    leaver.close()
    daemon.catch_up()
    waiting = daemon.begin("waiting", max_tokens=1)
    assert running.frames()[-1]["type"] == "done"
    assert waiting.frames()[-1]["type"] == "done"


def test_a_client_that_ends_its_side_only_keeps_its_permit(daemon: DaemonProcess):
    half = daemon.begin("half", max_tokens=100)
    half.half_close()
    waiting = daemon.begin("waiting", max_tokens=1)
    assert daemon.ask()[-1]["code"] == "queue_full"
    assert half.read_to_eof()[-1]["usage"]["completion_tokens"] == 100
    assert waiting.frames()[-1]["type"] == "done"


def test_a_client_that_stops_reading_is_dropped_in_time(make_daemon: MakeDaemon):
    long = mock(tokens=["x" * 50_000] * 20)
    admission = {"max_active": 1, "max_queued": 1}
    limits = {"write_timeout_s": 0.5}
    daemon = make_daemon(
        {"backend": [long], "admission": admission, "limits": limits}
    ).start()
    daemon.begin("stalled")
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"


def test_a_client_for_whom_there_is_no_room_is_told_so(make_daemon: MakeDaemon):
    limits = {"max_connections": 1}
    daemon = make_daemon({"backend": [mock()], "limits": limits})
    daemon.spawn()
    daemon.admin().until("ready")
    with daemon.connect() as first:
        assert first.ask(generate())[-1]["type"] == "done"
        with daemon.connect() as second:
            assert second.read_to_eof() == [
                {**FULL, "id": "", "message": "too many connections"}
            ]
        assert first.ask(generate())[-1]["type"] == "done"


def test_the_log_tells_the_end_of_each_request(daemon: DaemonProcess):
    daemon.ask(id="ended", max_tokens=2)
    daemon.ask(id="refused", top_p=0)
    daemon.begin("left").close()
    assert daemon.logged(req_id="left")
    ends = {line.get("req_id"): line for line in daemon.log_lines()}
    assert ends["ended"]["msg"] == "request_done"
    assert ends["ended"]["completion_tokens"] == 2
    assert ends["refused"]["msg"] == "request_refused"
    assert ends["refused"]["code"] == "invalid_request"
    assert ends["left"]["msg"] == "request_abandoned"
