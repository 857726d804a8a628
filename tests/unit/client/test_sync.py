import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import (
    ClientError,
    ConnectionLostError,
    ProtocolError,
    RequestFailedError,
    embeddings_of,
)
from inferd.client.frames import ClientBlocksDone, ClientDoneFrame, TextAnswer
from inferd.client.memfd import Memfd
from inferd.client.sync import (
    FrameClient,
    command,
    connect,
    wait_until_ready,
    watch_status,
)
from inferd.errors import ErrorCode
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    BlocksRequest,
    Message,
    TextBlock,
)
from inferd.wire.commands import Command
from inferd.wire.requests import (
    ChatMessage,
    EmbedRequest,
    GenerateRequest,
    RerankRequest,
)
from inferd.wire.responses import (
    BlockFrame,
    ProgressFrame,
    RankedDocument,
    TextDelta,
    TokenFrame,
)
from tests.fakes.hearing import hear, heard, partial, receive, segment
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
from tests.fakes.streams import Frame


def request(request_id: str = "r") -> GenerateRequest:
    return GenerateRequest(id=request_id, messages=[ChatMessage("user", "hello")])


def infer(directory: Path) -> Path:
    return directory / "infer.sock"


def admin(directory: Path) -> Path:
    return directory / "admin.sock"


def contents(frames: Iterator[TextAnswer]) -> list[str]:
    return [
        each.content
        for each in frames
        if isinstance(each, TokenFrame | ClientDoneFrame)
    ]


# --- requests ---------------------------------------------------------------------------


def test_an_answer_is_its_frames_with_done_last(short_dir):
    answer = [token("Hel"), token("lo"), done("Hello")]
    with listening(infer(short_dir), answers(answer)), FrameClient(short_dir) as client:
        frames = list(client.generate(request()))
    assert contents(iter(frames)) == ["Hel", "lo", "Hello"]
    assert isinstance(frames[-1], ClientDoneFrame)


def test_a_connection_serves_one_request_after_another(short_dir):
    dialogue = answers([done("a", "first")], [done("b", "second")])
    with listening(infer(short_dir), dialogue), FrameClient(short_dir) as client:
        for name, text in (("first", "a"), ("second", "b")):
            assert contents(client.generate(request(name))) == [text]


def test_frames_are_yielded_as_they_come(short_dir):
    was_read = threading.Event()

    def dribble(sock: socket.socket) -> None:
        says(token("a"))(sock)
        assert was_read.wait(90)
        says(done("a"))(sock)

    with listening(infer(short_dir), dribble), FrameClient(short_dir) as client:
        frames = client.generate(request())
        assert contents(islice(frames, 1)) == ["a"]
        was_read.set()
        assert contents(frames) == ["a"]


def test_an_error_frame_is_raised_with_all_its_fields(short_dir):
    frame = failure("invalid_request") | {"prompt_tokens": 9, "n_ctx": 8}
    with (
        listening(infer(short_dir), answers([frame])),
        FrameClient(short_dir) as client,
    ):
        with pytest.raises(RequestFailedError, match="so it is") as caught:
            list(client.generate(request()))
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert (caught.value.frame.prompt_tokens, caught.value.frame.n_ctx) == (9, 8)


def test_after_an_error_frame_the_connection_goes_on(short_dir):
    dialogue = answers([failure("queue_full")], [done("at last")])
    with listening(infer(short_dir), dialogue), FrameClient(short_dir) as client:
        with pytest.raises(RequestFailedError):
            list(client.generate(request()))
        assert contents(client.generate(request())) == ["at last"]


def test_a_daemon_that_closes_in_mid_answer_lost_the_connection(short_dir):
    with (
        listening(infer(short_dir), answers([token("a")])),
        FrameClient(short_dir) as client,
    ):
        frames = client.generate(request())
        next(frames)
        with pytest.raises(ConnectionLostError):
            next(frames)


def test_a_daemon_that_resets_the_connection_lost_it(short_dir):
    def leave(sock: socket.socket) -> None:
        sock.recv(1)  # the rest is not read, so closing resets

    with listening(infer(short_dir), leave), FrameClient(short_dir) as client:
        with pytest.raises(ConnectionLostError):
            list(client.generate(request()))


def test_a_daemon_that_closes_between_requests_lost_the_connection(short_dir):
    with listening(infer(short_dir), answers([done("a")])) as daemon:
        with FrameClient(short_dir) as client:
            assert contents(client.generate(request())) == ["a"]
            daemon.join(90)
            with pytest.raises(ConnectionLostError):
                list(client.generate(request()))


def test_frames_before_the_daemon_closes_are_read(short_dir):
    last_words = [done("a"), failure("queue_full", request_id="")]
    with listening(infer(short_dir), answers(last_words)) as daemon:
        with FrameClient(short_dir) as client:
            assert contents(islice(client.generate(request()), 1)) == ["a"]
            daemon.join(90)
            with pytest.raises(RequestFailedError) as caught:
                list(client.generate(request()))
    assert caught.value.code == ErrorCode.QUEUE_FULL


def test_a_frame_for_another_request_is_refused(short_dir):
    dialogue = answers([done("a", "not ours")])
    with listening(infer(short_dir), dialogue), FrameClient(short_dir) as client:
        with pytest.raises(ProtocolError, match="not ours"):
            list(client.generate(request()))


def test_a_request_in_the_middle_of_an_answer_is_refused(short_dir):
    dialogue = answers([token("a")])
    with listening(infer(short_dir), dialogue), FrameClient(short_dir) as client:
        answer = client.generate(request())
        next(answer)
        with pytest.raises(ClientError, match="not complete"):
            next(client.generate(request()))


def test_a_silent_daemon_times_out(short_dir):
    with listening(infer(short_dir), assert_eof):
        with (
            FrameClient(short_dir, timeout_s=0.01) as client,
            pytest.raises(TimeoutError),
        ):
            list(client.generate(request()))


def assert_eof(sock: socket.socket) -> None:
    read_line(sock)
    assert sock.recv(1) == b""


def test_leaving_closes_every_connection(short_dir):
    def listen(sock: socket.socket) -> None:
        answers([done("a")])(sock)
        assert sock.recv(1) == b""

    def listen_for_texts(sock: socket.socket) -> None:
        answers([embeddings([[1]])])(sock)
        assert sock.recv(1) == b""

    with (
        listening(infer(short_dir), listen),
        listening(short_dir / "infer.embed.sock", listen_for_texts),
        FrameClient(short_dir) as client,
    ):
        list(client.generate(request()))
        client.embed(EmbedRequest(id="r", input=["a"]))


def test_requested_progress_is_yielded(short_dir):
    queued = {"type": "status", "id": "r", "status": "queued", "position": 1}
    dialogue = answers([queued, token("a"), done("a")])
    with listening(infer(short_dir), dialogue), FrameClient(short_dir) as client:
        [first, *_] = client.generate(request())
    assert first == ProgressFrame(id="r", status="queued", position=1)


# --- the other sockets ------------------------------------------------------------------


def embeddings(numbers: list[list[float]], request_id: str = "r") -> Frame:
    return {
        "type": "embeddings",
        "id": request_id,
        "embeddings": numbers,
        "dimensions": len(numbers[0]),
        "model": "m",
        "backend": "b",
        "usage": {"input_tokens": 1},
    }


def test_a_conversation_is_answered_in_blocks(short_dir):
    delta = {"type": "frame", "id": "r", "block": {"type": "text", "delta": "a"}}
    usage = {"input_tokens": 1, "output_tokens": 1}
    end = done("", usage=usage, stop_reason="end_turn")
    asked = BlocksRequest(id="r", messages=[Message("user", [TextBlock("hello")])])
    path = short_dir / "infer.v2.sock"
    with listening(path, answers([delta, end])), FrameClient(short_dir) as client:
        [first, last] = client.converse(asked)
    assert first == BlockFrame(id="r", block=TextDelta("a"))
    assert isinstance(last, ClientBlocksDone)
    assert last.stop_reason == "end_turn"


def test_texts_become_embeddings_which_can_be_read(short_dir):
    path = short_dir / "infer.embed.sock"
    dialogue = answers([embeddings([[1, 0.5], [0, 2]])])
    with listening(path, dialogue), FrameClient(short_dir) as client:
        frame = client.embed(EmbedRequest(id="r", input=["a", "b"]))
    assert frame.dimensions == 2
    assert embeddings_of(frame) == [[1.0, 0.5], [0.0, 2.0]]


def test_documents_are_ranked(short_dir):
    ranked = {
        "type": "rerank",
        "id": "r",
        "results": [{"index": 1, "score": 3}],
        "model": "m",
        "usage": {"input_tokens": 1},
        "backend": "b",
    }
    path = short_dir / "infer.rerank.sock"
    with listening(path, answers([ranked])), FrameClient(short_dir) as client:
        frame = client.rerank(RerankRequest(id="r", query="q", documents=["a", "b"]))
    assert frame.results == [RankedDocument(1, 3.0)]


def test_a_socket_is_needed_only_for_its_requests(short_dir):
    path = short_dir / "infer.embed.sock"
    with (
        listening(path, answers([embeddings([[1]])])),
        FrameClient(short_dir) as client,
    ):
        client.embed(EmbedRequest(id="r", input=["a"]))
        with pytest.raises(NoDaemonError, match="infer.sock"):
            list(client.generate(request()))


# --- media ------------------------------------------------------------------------------

BLOCK = bytes(64_000)


def spoken(**fields):
    return BlocksRequest(
        id="r",
        messages=[Message("user", [AudioBlock("a")])],
        attachments=[AudioAttachment(id="a", sample_rate=16_000, **fields)],
    )


def texts(frames) -> list[str]:
    """Everything that is said, the end aside."""
    said = (msgspec.to_builtins(frame) for frame in frames)
    return [
        frame.get("text") or frame["block"]["delta"]
        for frame in said
        if frame["type"] != "done"
    ]


@pytest.fixture
def converse(short_dir):
    """Have a request answered by who follows a dialogue."""

    @contextmanager
    def following(dialogue, request, **media):
        path = short_dir / "infer.v2.sock"
        with listening(path, dialogue), FrameClient(short_dir, timeout_s=90) as client:
            yield client.converse(request, **media)

    return following


def test_memory_is_passed_with_the_request(converse):
    came: list[object] = []

    def look(sock: socket.socket) -> None:
        frame, contents = receive(sock)
        came.extend((frame["attachments"][0]["fd"], contents))
        says(heard())(sock)

    with Memfd() as memory:
        memory.write(BLOCK)
        with converse(look, spoken(fd=0), descriptors=[memory.fd]) as frames:
            [last] = frames
    assert came == [0, [BLOCK]]
    assert last.transcription.language == "en"


def test_audio_is_sent_block_by_block_and_ended(converse):
    came: list[bytes] = []

    def listen(sock: socket.socket) -> None:
        receive(sock)
        sound, lines = hear(sock)
        came.extend((sound, bytes(len(lines))))
        says(segment("Hello", 0, 9), heard())(sock)

    blocks = [b"\1" * 8, b"", b"\2" * 8]
    with converse(listen, spoken(open=True), sound=blocks) as frames:
        assert texts(frames) == ["Hello"]
    assert came == [b"\1" * 8 + b"\2" * 8, bytes(3)]


def test_partial_results_are_yielded_before_the_audio_ends(converse):
    told: list[str] = []

    def listen(sock: socket.socket) -> None:
        receive(sock)
        receive(sock)
        says(partial("Hel", 0, 5))(sock)
        hear(sock)
        says(segment("Hello", 0, 9), heard())(sock)

    def speak() -> Iterator[bytes]:
        yield BLOCK
        while not told:
            yield b""
        yield BLOCK

    with converse(listen, spoken(open=True), sound=speak()) as frames:
        for frame in frames:
            told.extend(texts([frame]))
    assert told == ["Hel", "Hello"]


def test_a_daemon_that_reads_nothing_until_it_is_read_is_read(converse):
    def talk(sock: socket.socket) -> None:
        receive(sock)
        says(*[segment("x" * 1000, 0, 9)] * 500)(sock)
        sound, _ = hear(sock)
        assert len(sound) == 50 * len(BLOCK)
        says(heard())(sock)

    with converse(talk, spoken(open=True), sound=[BLOCK] * 50) as frames:
        assert len(texts(frames)) == 500


def test_no_audio_is_sent_after_an_answer_ended_early(converse):
    given: list[int] = []

    def refuse(sock: socket.socket) -> None:
        receive(sock)
        says(failure("attachment_unsupported"))(sock)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(100_000):
            pass

    def endless() -> Iterator[bytes]:
        while True:
            given.append(1)
            yield BLOCK

    with converse(refuse, spoken(open=True), sound=endless()) as frames:
        with pytest.raises(RequestFailedError):
            list(frames)
    assert len(given) < 10_000


def test_an_error_of_the_audio_iterator_reaches_the_caller(converse):
    def breaking() -> Iterator[bytes]:
        yield BLOCK
        raise ZeroDivisionError

    def listen(sock: socket.socket) -> None:
        while sock.recv(100_000):
            pass

    with converse(listen, spoken(open=True), sound=breaking()) as frames:
        with pytest.raises(ZeroDivisionError):
            list(frames)


def test_audio_without_an_open_attachment_is_refused_before_sending(short_dir):
    with FrameClient(short_dir) as client:
        with pytest.raises(ClientError, match="no attachment of the request is open"):
            next(client.converse(spoken(fd=0), sound=[BLOCK]))
        with pytest.raises(ClientError, match="no audio is given"):
            next(client.converse(spoken(open=True)))


def test_a_cancel_is_queued_behind_audio_that_is_not_read(short_dir):
    is_full = threading.Event()

    def listen_late(sock: socket.socket) -> None:
        receive(sock)
        assert is_full.wait(90)
        lines = [receive(sock)[0]]
        while lines[-1]["type"] == "append":
            lines.append(receive(sock)[0])
        assert lines[-1] == {"type": "cancel", "id": "r"}
        says(heard(stop_reason="cancelled"))(sock)

    def endless() -> Iterator[bytes]:
        while True:
            assert client._blocks._socket is not None
            assert client._blocks._socket.is_flushed, "a block that has no room"
            yield BLOCK

    def cancel() -> None:
        while client._blocks._socket is None or client._blocks._socket.is_flushed:
            time.sleep(0.001)
        is_full.set()
        assert client.cancel("r")

    with listening(short_dir / "infer.v2.sock", listen_late):
        with FrameClient(short_dir, timeout_s=90) as client:
            thread = threading.Thread(target=cancel)
            thread.start()
            [last] = client.converse(spoken(open=True), sound=endless())
            thread.join()
    assert isinstance(last, ClientBlocksDone)
    assert last.stop_reason == "cancelled"


# --- cancelling -------------------------------------------------------------------------


def test_a_request_is_cancelled_on_its_own_connection(short_dir):
    lines: list[Frame] = []

    def end_when_told(sock: socket.socket) -> None:
        says(token("a"))(sock)
        lines.extend(json.loads(read_line(sock)) for _ in range(2))
        says(done("a", stop_reason="cancelled"))(sock)

    with listening(infer(short_dir), end_when_told), FrameClient(short_dir) as client:
        frames = client.generate(request())
        next(frames)
        assert not client.cancel("another")
        assert client.cancel("r")
        [last] = frames
        assert not client.cancel("r")
    assert lines[1] == {"type": "cancel", "id": "r"}
    assert isinstance(last, ClientDoneFrame)
    assert last.stop_reason == "cancelled"


def test_another_thread_may_cancel_what_one_waits_for(short_dir):
    was_asked = threading.Event()

    def end_when_told(sock: socket.socket) -> None:
        read_line(sock)
        was_asked.set()
        assert json.loads(read_line(sock))["type"] == "cancel"
        says(failure("cancelled"))(sock)

    def cancel() -> None:
        assert was_asked.wait(90)
        client.cancel("r")

    path = short_dir / "infer.embed.sock"
    with listening(path, end_when_told), FrameClient(short_dir) as client:
        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(RequestFailedError, match="cancelled: "):
            client.embed(EmbedRequest(id="r", input=["a"]))
        thread.join()


def test_a_cancel_is_sent_while_the_answer_is_not_read(short_dir):
    is_full = threading.Event()

    def end_when_told(sock: socket.socket) -> None:
        read_line(sock)
        says(token("a"))(sock)
        assert is_full.wait(90)
        heard = b""
        while b"cancel" not in heard:
            heard = heard[-9:] + sock.recv(100_000)
        says(done("a", stop_reason="cancelled"))(sock)

    with listening(infer(short_dir), end_when_told), FrameClient(short_dir) as client:
        frames = client.generate(request())
        next(frames)
        assert client._text._socket is not None
        with pytest.raises(BlockingIOError):
            while True:
                client._text._socket._sock.send(b" " * 100_000)
        is_full.set()
        assert client.cancel("r")
        assert client._text._socket.is_flushed
        assert len(list(frames)) == 1


def test_a_cancel_waits_until_the_request_is_sent(short_dir):
    lines: list[Frame] = []
    is_cancelling = threading.Event()
    deadline = time.monotonic() + 90

    def read_late(sock: socket.socket) -> None:
        assert is_cancelling.wait(90)
        with sock.makefile("rb") as file:
            lines.extend(json.loads(file.readline()) for _ in range(2))
        says(done("", stop_reason="cancelled"))(sock)

    def cancel() -> None:
        while client._text._exchange.is_done and time.monotonic() < deadline:
            time.sleep(0.001)  # until as much is sent as the kernel holds
        is_cancelling.set()
        client.cancel("r")

    long = GenerateRequest(id="r", messages=[ChatMessage("user", "x" * 1_000_000)])
    with listening(infer(short_dir), read_late), FrameClient(short_dir) as client:
        thread = threading.Thread(target=cancel)
        thread.start()
        list(client.generate(long))
        thread.join()
    assert [line.get("type") for line in lines] == [None, "cancel"]


# --- connecting -------------------------------------------------------------------------


def test_a_missing_daemon_is_reported_with_the_path(short_dir):
    with pytest.raises(NoDaemonError, match=f"{infer(short_dir)} .No such file"):
        connect("infer.sock", short_dir)


def test_a_socket_without_a_listener_is_no_daemon(short_dir):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(infer(short_dir)))
    with pytest.raises(NoDaemonError, match="refused"):
        connect("infer.sock", short_dir)


def test_directories_are_tried_in_order(short_dir, monkeypatch):
    first, second = short_dir / "first", short_dir / "second"
    for directory in (first, second):
        directory.mkdir()
    monkeypatch.setattr(
        "inferd.client.discovery.client_directories", lambda: [first, second]
    )
    with listening(infer(second), answers([done("second")])), FrameClient() as client:
        assert contents(client.generate(request())) == ["second"]
    with pytest.raises(NoDaemonError, match=f"{first}.*nor.*{second}"):
        connect("infer.sock")


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


def test_a_silent_admin_socket_times_out(short_dir):
    with listening(admin(short_dir), assert_eof), pytest.raises(TimeoutError):
        next(watch_status(short_dir, timeout_s=0.01))


def test_the_reply_to_a_command_is_found_among_status_frames(short_dir):
    asked: list[Frame] = []

    def obey(sock: socket.socket) -> None:
        says(status("ready"))(sock)
        asked.append(json.loads(read_line(sock)))
        says(status("draining"), REPLY, status("news"))(sock)

    with listening(admin(short_dir), obey):
        reply = command(Command(command="cancel", id="r"), short_dir)
    assert asked == [{"command": "cancel", "id": "r"}]
    assert (reply.ok, reply.error) == (False, "no request has it")


REPLY = {
    "id": "admin",
    "type": "reply",
    "command": "cancel",
    "ok": False,
    "error": "no request has it",
}


def test_a_daemon_that_ends_before_its_reply_lost_the_connection(short_dir):
    with listening(admin(short_dir), says(status("ready"))):
        with pytest.raises(ConnectionLostError):
            command(Command(command="drain"), short_dir)


def test_a_daemon_without_commands_is_an_error(short_dir):
    with listening(admin(short_dir), assert_eof), pytest.raises(TimeoutError):
        command(Command(command="drain"), short_dir, timeout_s=0.01)


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


def test_every_status_until_ready_is_reported(short_dir, fake_time):
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
    told: list[str] = []
    with listening(admin(short_dir), first, second):
        wait_until_ready(
            short_dir, timeout_s=10, on_status=lambda each: told.append(each.status)
        )
    assert told == ["starting", "ready"]


def test_waiting_has_an_end(short_dir, fake_time):
    with pytest.raises(NoDaemonError, match="no daemon answers"):
        wait_until_ready(short_dir, timeout_s=10)
    assert 10 < fake_time.now < 11


def test_waiting_ends_when_should_stop_returns_true(short_dir, fake_time):
    asked: list[bool] = []

    def should_stop() -> bool:
        asked.append(True)
        return len(asked) == 3

    with pytest.raises(NoDaemonError):
        wait_until_ready(short_dir, timeout_s=1000, should_stop=should_stop)
    assert len(asked) == 3


def test_waiting_times_out_whatever_the_status(short_dir, fake_time):
    def pass_time(_) -> None:
        fake_time.now += 1

    restarting = says(*[status("restarting")] * 100)
    with listening(admin(short_dir), restarting), pytest.raises(NoDaemonError):
        wait_until_ready(short_dir, timeout_s=10, on_status=pass_time)
    assert fake_time.now < 20


BLOCKS = BlocksRequest(id="r", messages=[Message("user", [TextBlock("hello")])])


@pytest.mark.parametrize(
    ("leaf", "ask"),
    [
        ("infer", lambda client, **model: list(client.generate(request(), **model))),
        ("infer.v2", lambda client, **model: list(client.converse(BLOCKS, **model))),
        (
            "infer.embed",
            lambda client, **model: client.embed(
                EmbedRequest(id="r", input=["a"]), **model
            ),
        ),
        (
            "infer.rerank",
            lambda client, **model: client.rerank(
                RerankRequest(id="r", query="q", documents=["a"]), **model
            ),
        ),
    ],
    ids=["generate", "converse", "embed", "rerank"],
)
def test_a_model_is_named_and_those_that_would_do_are_read(short_dir, leaf, ask):
    asked: list[str | None] = []

    def listen(sock: socket.socket) -> None:
        for _ in range(2):
            asked.append(json.loads(read_line(sock))["model"])
            says(failure("model_not_found") | {"models": ["a", "b"]})(sock)

    with (
        listening(short_dir / f"{leaf}.sock", listen),
        FrameClient(short_dir) as client,
    ):
        for model in ({"model": "big"}, {}):
            with pytest.raises(RequestFailedError) as caught:
                ask(client, **model)
            assert caught.value.frame.models == ["a", "b"]
    assert asked == ["big", None]
