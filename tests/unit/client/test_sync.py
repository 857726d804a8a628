import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import (
    ClientError,
    ConnectionLostError,
    ProtocolError,
    RequestFailedError,
)
from inferd.client.sync import Client, connect, wait_until_ready, watch_status
from inferd.errors import ErrorCode
from inferd.wire.requests import ChatMessage, GenerateRequest
from tests.fakes.listener import (
    answers,
    done,
    failure,
    full_backlog,
    listening,
    read_line,
    says,
    status,
    token,
)


def request(request_id: str = "r") -> GenerateRequest:
    return GenerateRequest(id=request_id, messages=[ChatMessage("user", "hello")])


def infer(directory: Path) -> Path:
    return directory / "infer.sock"


def admin(directory: Path) -> Path:
    return directory / "admin.sock"


# --- requests ---------------------------------------------------------------------------


def test_an_answer_is_its_frames_with_done_last(short_dir):
    answer = [token("Hel"), token("lo"), done("Hello")]
    with listening(infer(short_dir), answers(answer)), Client(short_dir) as client:
        frames = list(client.generate(request()))
    assert [frame.content for frame in frames] == ["Hel", "lo", "Hello"]
    assert [type(frame).__name__ for frame in frames][-1] == "DoneFrame"


def test_a_connection_serves_one_request_after_another(short_dir):
    dialogue = answers([done("a", "first")], [done("b", "second")])
    with listening(infer(short_dir), dialogue), Client(short_dir) as client:
        for name, text in (("first", "a"), ("second", "b")):
            assert [each.content for each in client.generate(request(name))] == [text]


def test_frames_are_given_as_they_come(short_dir):
    was_read = threading.Event()

    def dribble(sock: socket.socket) -> None:
        says(token("a"))(sock)
        assert was_read.wait(20)
        says(done("a"))(sock)

    with listening(infer(short_dir), dribble), Client(short_dir) as client:
        frames = client.generate(request())
        assert next(frames).content == "a"
        was_read.set()
        assert next(frames).content == "a"


def test_an_error_frame_is_raised_with_all_that_it_says(short_dir):
    frame = failure("invalid_request") | {"prompt_tokens": 9, "n_ctx": 8}
    with listening(infer(short_dir), answers([frame])), Client(short_dir) as client:
        with pytest.raises(RequestFailedError, match="so it is") as caught:
            list(client.generate(request()))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert (caught.value.frame.prompt_tokens, caught.value.frame.n_ctx) == (9, 8)


def test_after_an_error_frame_the_connection_goes_on(short_dir):
    dialogue = answers([failure("queue_full")], [done("at last")])
    with listening(infer(short_dir), dialogue), Client(short_dir) as client:
        with pytest.raises(RequestFailedError):
            list(client.generate(request()))
        assert next(client.generate(request())).content == "at last"


def test_a_daemon_that_closes_in_mid_answer_lost_the_connection(short_dir):
    with (
        listening(infer(short_dir), answers([token("a")])),
        Client(short_dir) as client,
    ):
        frames = client.generate(request())
        next(frames)
        with pytest.raises(ConnectionLostError):
            next(frames)


def test_a_daemon_that_resets_the_connection_lost_it(short_dir):
    def leave(sock: socket.socket) -> None:
        sock.recv(1)  # the rest is not read, so closing resets

    with listening(infer(short_dir), leave), Client(short_dir) as client:
        with pytest.raises(ConnectionLostError):
            list(client.generate(request()))


def test_a_daemon_that_closed_before_the_request_lost_the_connection(short_dir):
    with listening(infer(short_dir), lambda _: None) as daemon:
        with Client(short_dir) as client:
            daemon.join(20)
            with pytest.raises(ConnectionLostError):
                list(client.generate(request()))


def test_what_a_daemon_said_before_it_closed_is_heard(short_dir):
    refusal = failure("queue_full", request_id="")
    with listening(infer(short_dir), says(refusal)) as daemon:
        with Client(short_dir) as client:
            daemon.join(20)
            with pytest.raises(RequestFailedError) as caught:
                list(client.generate(request()))
    assert caught.value.code is ErrorCode.QUEUE_FULL


def test_a_frame_for_somebody_else_is_refused(short_dir):
    dialogue = answers([done("a", "not ours")])
    with listening(infer(short_dir), dialogue), Client(short_dir) as client:
        with pytest.raises(ProtocolError, match="not ours"):
            list(client.generate(request()))


def test_a_request_in_the_middle_of_an_answer_is_refused(short_dir):
    dialogue = answers([token("a")])
    with listening(infer(short_dir), dialogue), Client(short_dir) as client:
        next(client.generate(request()))
        with pytest.raises(ClientError, match="not complete"):
            next(client.generate(request()))


def test_a_silent_daemon_is_given_up_on_when_asked_to(short_dir):
    with listening(infer(short_dir), assert_eof):
        with Client(short_dir, timeout_s=0.01) as client, pytest.raises(TimeoutError):
            list(client.generate(request()))


def assert_eof(sock: socket.socket) -> None:
    read_line(sock)
    assert sock.recv(1) == b""


def test_leaving_closes_the_connection(short_dir):
    with listening(infer(short_dir), assert_eof), Client(short_dir):
        pass


# --- connecting -------------------------------------------------------------------------


def test_nobody_there_is_told_with_the_place(short_dir):
    with pytest.raises(NoDaemonError, match=f"{infer(short_dir)} .No such file"):
        Client(short_dir)


def test_a_socket_that_nobody_listens_on_is_nobody(short_dir):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(infer(short_dir)))
    with pytest.raises(NoDaemonError, match="refused"):
        Client(short_dir)


def test_places_are_tried_in_order(short_dir, monkeypatch):
    first, second = short_dir / "first", short_dir / "second"
    for directory in (first, second):
        directory.mkdir()
    monkeypatch.setattr(
        "inferd.client.discovery.client_directories", lambda: [first, second]
    )
    with listening(infer(second), answers([done("second")])), Client() as client:
        assert next(client.generate(request())).content == "second"
    with pytest.raises(NoDaemonError, match=f"{first}.*nor.*{second}"):
        Client()


def test_a_full_backlog_is_waited_out(short_dir):
    connected = threading.Event()

    def accept_until_connected(listener: socket.socket) -> None:
        while not connected.is_set():
            with suppress(TimeoutError):
                listener.accept()[0].close()

    with full_backlog(infer(short_dir)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=accept_until_connected, args=(listener,))
        thread.start()
        with connect("infer.sock", short_dir) as connection:
            connected.set()
            assert connection.getpeername() == str(infer(short_dir))
        thread.join()


# --- the admin socket -------------------------------------------------------------------


def test_statuses_come_as_bytes_and_as_read(short_dir):
    def dribble(sock: socket.socket) -> None:
        data = b'{"status": "starting"}\n{"status": "ready", "news": 1}\n'
        for byte in data:
            sock.sendall(bytes([byte]))

    with listening(admin(short_dir), dribble):
        seen = list(watch_status(short_dir))
    assert [line for line, _ in seen] == [
        b'{"status": "starting"}',
        b'{"status": "ready", "news": 1}',
    ]
    assert [each.status for _, each in seen] == ["starting", "ready"]


def test_a_silent_admin_socket_is_given_up_on(short_dir):
    with listening(admin(short_dir), assert_eof), pytest.raises(TimeoutError):
        next(watch_status(short_dir, timeout_s=0.01))


# --- waiting ----------------------------------------------------------------------------


class FakeTime(SimpleNamespace):
    """A clock that a sleep moves on; something may happen during each."""

    def __init__(self, *happenings) -> None:
        self.now = 0.0
        self.happenings = list(happenings)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.happenings:
            self.happenings.pop(0)()


@pytest.fixture
def fake_time(monkeypatch) -> FakeTime:
    clock = FakeTime()
    monkeypatch.setattr("inferd.client.sync.time", clock)
    return clock


def test_a_daemon_that_is_ready_needs_no_waiting(short_dir, fake_time):
    with listening(admin(short_dir), says(status("ready"))):
        wait_until_ready(short_dir, timeout_s=10)
    assert fake_time.now == 0


def test_every_status_on_the_way_is_told(short_dir, fake_time):
    words = ["starting", "loading_model", "ready"]
    told: list[str] = []
    with listening(admin(short_dir), says(*map(status, words))):
        wait_until_ready(
            short_dir, timeout_s=10, on_status=lambda each: told.append(each.status)
        )
    assert told == words


def test_a_socket_may_appear_later(short_dir, fake_time):
    listener = listening(admin(short_dir), says(status("ready")))
    fake_time.happenings = [lambda: None, listener.__enter__]
    wait_until_ready(short_dir, timeout_s=10)
    listener.__exit__(None, None, None)
    assert fake_time.happenings == []


def test_a_daemon_that_closes_is_asked_again(short_dir, fake_time):
    first, second = says(status("starting")), says(status("ready"))
    with listening(admin(short_dir), first, second):
        wait_until_ready(short_dir, timeout_s=10)


def test_waiting_has_an_end(short_dir, fake_time):
    with pytest.raises(NoDaemonError, match="no daemon answers"):
        wait_until_ready(short_dir, timeout_s=10)
    assert 10 < fake_time.now < 11


def test_waiting_ends_when_there_is_no_hope(short_dir, fake_time):
    asked: list[bool] = []

    def is_hopeless() -> bool:
        asked.append(True)
        return len(asked) == 3

    with pytest.raises(NoDaemonError):
        wait_until_ready(short_dir, timeout_s=1000, is_hopeless=is_hopeless)
    assert len(asked) == 3


def test_waiting_has_an_end_whatever_the_daemon_says(short_dir, fake_time):
    def pass_time(_) -> None:
        fake_time.now += 1

    restarting = says(*[status("restarting")] * 100)
    with listening(admin(short_dir), restarting), pytest.raises(NoDaemonError):
        wait_until_ready(short_dir, timeout_s=10, on_status=pass_time)
    assert fake_time.now < 20
