import json
import socket
import threading

import pytest

from inferd.client.exchange import APPEND_BYTES, ClientError, ConnectionLostError
from inferd.client.frames import ClientDoneFrame
from inferd.client.sync import FrameClient
from inferd.wire.blocks import AudioAttachment, AudioBlock, BlocksRequest, Message
from inferd.wire.requests import ChatMessage, GenerateRequest
from tests.fakes.hearing import hear, heard, receive
from tests.fakes.listener import done, read_line, token
from tests.fakes.streams import to_line

PATIENCE_S = 90.0


@pytest.fixture
def serve(short_dir):
    """Serve connections one after another, each by its dialogue; then look if all was."""
    threads = []

    def start(*dialogues, leaf="infer.sock"):
        listener = socket.socket(socket.AF_UNIX)
        listener.settimeout(PATIENCE_S)
        listener.bind(str(short_dir / leaf))
        listener.listen()

        def follow():
            with listener:
                for dialogue in dialogues:
                    with listener.accept()[0] as connection:
                        connection.settimeout(PATIENCE_S)
                        dialogue(connection)

        threads.append(threading.Thread(target=follow))
        threads[-1].start()
        return short_dir

    yield start
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def request(request_id="r"):
    return GenerateRequest(id=request_id, messages=[ChatMessage("user", "hello")])


def spoken():
    return BlocksRequest(
        id="r",
        messages=[Message("user", [AudioBlock("a")])],
        attachments=[AudioAttachment(id="a", sample_rate=16_000, open=True)],
    )


def begins(sock):
    """Begin an answer, and see that it is given up."""
    read_line(sock)
    sock.sendall(to_line(token("a")))
    assert sock.recv(1) == b""


def answers(sock):
    read_line(sock)
    sock.sendall(to_line(done("b")))


def breaks(sock):
    read_line(sock)
    sock.sendall(to_line(token("a")))


def ended_early(client):
    answer = client.generate(request())
    next(answer)
    answer.close()


def collected(client):
    next(client.generate(request()))


def silent(client):
    with pytest.raises(TimeoutError):
        list(client.generate(request()))


def lost(client):
    with pytest.raises(ConnectionLostError):
        list(client.generate(request()))


@pytest.mark.parametrize(
    ("interrupt", "dialogue"),
    [(ended_early, begins), (collected, begins), (silent, begins), (lost, breaks)],
)
def test_after_an_answer_that_was_interrupted_the_next_is_had_anew(
    serve, interrupt, dialogue
):
    with FrameClient(serve(dialogue, answers), timeout_s=0.2) as client:
        interrupt(client)
        [frame] = client.generate(request())
    assert isinstance(frame, ClientDoneFrame)
    assert frame.content == "b"


def test_an_audio_iterator_that_raises_ends_its_request(serve):
    def broken():
        yield b"\0" * 4
        raise ZeroDivisionError

    def listen(sock):
        while sock.recv(100_000):
            pass

    def hear_all(sock):
        receive(sock)
        hear(sock)
        sock.sendall(to_line(heard()))

    with FrameClient(serve(listen, hear_all, leaf="infer.v2.sock")) as client:
        with pytest.raises(ZeroDivisionError):
            list(client.converse(spoken(), sound=broken()))
        assert len(list(client.converse(spoken(), sound=[]))) == 1


def test_blocks_of_any_length_are_sent_in_lines_that_a_daemon_takes(serve):
    block = bytes(range(256)) * (4 * APPEND_BYTES // 256) + b"\0\1\2\3"
    said, lines = [], []

    def hear_all(sock):
        receive(sock)
        sound, appended = hear(sock)
        said.append(sound)
        lines.extend(appended)
        sock.sendall(to_line(heard()))

    with FrameClient(serve(hear_all, leaf="infer.v2.sock")) as client:
        list(client.converse(spoken(), sound=[block, b"", block]))
    assert said == [2 * block]
    assert max(len(json.dumps(line)) for line in lines) < 400_000


def test_a_request_that_cannot_be_sent_leaves_the_connection_as_it_is(serve):
    def both(sock):
        answers(sock)
        answers(sock)

    with FrameClient(serve(both)) as client:
        list(client.generate(request()))
        with pytest.raises(ClientError, match="not valid UTF-8"):
            list(client.generate(request("\ud800")))
        assert len(list(client.generate(request()))) == 1


def test_a_closed_client_refuses_requests(serve):
    client = FrameClient(serve(begins))
    answer = client.generate(request())
    next(answer)
    client.close()
    with pytest.raises(ConnectionLostError):
        list(answer)
    for _ in range(2):
        with pytest.raises(ClientError, match="the client is closed"):
            list(client.generate(request()))
    assert not client.cancel("r")
    client.close()


def test_a_waiting_thread_gets_an_error_when_the_client_is_closed(serve):
    client = FrameClient(serve(begins))
    answer = client.generate(request())
    next(answer)
    closing = threading.Timer(0.05, client.close)
    closing.start()
    with pytest.raises(ConnectionLostError):
        next(answer)
    closing.join()
