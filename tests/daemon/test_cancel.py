from collections.abc import Iterator

import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, blocks, generate, mock

pytestmark = pytest.mark.slow

ENDLESS = mock(tokens=["x"] * 100_000, token_delay_ms=5)
CANCEL = {"type": "cancel", "id": "r"}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    admission = {"max_active": 1, "max_queued": 5}
    with daemons() as make:
        yield make({"backend": [ENDLESS], "admission": admission}).start()


@pytest.mark.parametrize(
    ("leaf", "request_of"), [("infer.sock", generate), ("infer.v2.sock", blocks)]
)
def test_a_cancel_ends_what_runs_and_the_connection_goes_on(
    daemon: DaemonProcess, leaf, request_of
):
    with daemon.connect(leaf) as client:
        client.send(request_of(id="r"))
        client.frame()
        client.send(CANCEL)
        *pieces, done = client.frames()
        assert (done["id"], done["stop_reason"]) == ("r", "cancelled")
        if leaf == "infer.sock":
            assert done["content"] == "x" * (1 + len(pieces))
        done = client.ask(request_of(id="next", max_tokens=2))[-1]
        assert done["id"] == "next"
        assert done["stop_reason"] in ("length", "max_tokens")


def test_a_cancel_ends_what_waits_in_the_queue_or_behind_another(daemon: DaemonProcess):
    running, waiting = daemon.begin("running"), daemon.begin("r")
    waiting.send(generate(id="behind", max_tokens=1))
    waiting.send({"type": "cancel", "id": "behind"})
    waiting.send(CANCEL)
    for request_id in ("r", "behind"):
        [done] = waiting.frames()
        assert (done["id"], done["stop_reason"]) == (request_id, "cancelled")
    running.send({"type": "cancel", "id": "running"})
    assert running.frames()[-1]["stop_reason"] == "cancelled"


def test_vectors_that_are_cancelled_are_an_error(daemon: DaemonProcess):
    running = daemon.begin("running")
    with daemon.connect("infer.embed.sock") as client:
        client.send({"id": "r", "input": ["a"]})
        client.send(CANCEL)
        assert client.frames() == [
            {
                "type": "error",
                "id": "r",
                "code": "cancelled",
                "message": "the request was cancelled",
            }
        ]
    running.close()


def test_a_cancel_too_late_or_of_nobody_is_answered_by_nothing(daemon: DaemonProcess):
    with daemon.connect() as client:
        client.send(CANCEL)
        assert client.ask(generate(id="r", max_tokens=1))[-1]["stop_reason"] == "length"
        client.send(CANCEL)
        client.half_close()
        client.read_eof()


def test_a_cancelled_stream_that_nobody_read_is_whole_lines(daemon: DaemonProcess):
    with daemon.connect() as client:
        client.send(generate(id="r"))
        client.frame()
        for n in range(20):
            client.send({"type": "cancel", "id": "r"})
            client.send(generate(id="r", max_tokens=n))
        ends = [client.frames()[-1] for _ in range(21)]
    assert {end["stop_reason"] for end in ends} <= {"cancelled", "length"}
    assert ends[0]["stop_reason"] == "cancelled"
