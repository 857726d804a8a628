import socket
import threading

import pytest

from bench.load.play import play
from bench.load.scene import Ask
from bench.load.speech import Daemon, ServerError

FRAME = b'{"type":"frame","id":"bench","block":{"type":"text","delta":"a"}}\n'
DONE = (
    b'{"type":"done","id":"bench","usage":{"input_tokens":9,"output_tokens":2,'
    b'"cached_tokens":0},"stop_reason":"max_tokens","backend":"chat"}\n'
)
STREAM = Ask(turns=[("user", "stream")], max_tokens=9, hangs_up=True)
LATER = Ask(turns=[("user", "later")], max_tokens=2, after_pieces=3)


class Scripted(Daemon):
    """Whose other ends are ours."""

    def __init__(self):
        super().__init__("/run")
        self.ends: list[socket.socket] = []

    def connected(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.ends.append(theirs)
        return ours


@pytest.fixture
def server():
    scripted = Scripted()
    yield scripted
    for end in scripted.ends:
        end.close()


def test_one_answer_is_read_to_its_end(server):
    thread = threading.Thread(target=lambda: speak(server, 0, FRAME + DONE))
    thread.start()
    [answer] = play(server, [Ask(turns=[("user", "hello")], max_tokens=2)])
    thread.join()
    assert (answer.text, answer.n_tokens) == ("a", 2)
    assert answer.sent_at <= answer.times[0]


def speak(server, index, data):
    while len(server.ends) <= index:
        pass
    server.ends[index].recv(4096)
    server.ends[index].sendall(data)


def test_a_later_request_waits_for_pieces_of_the_first_and_ends_the_scene(server):
    asked: list[bytes] = []
    n_connections: list[int] = []

    def serve():
        speak(server, 0, FRAME * 2)
        n_connections.append(len(server.ends))
        server.ends[0].sendall(FRAME)
        while len(server.ends) < 2:
            pass
        asked.append(server.ends[1].recv(4096))
        server.ends[1].sendall(FRAME + DONE)

    thread = threading.Thread(target=serve)
    thread.start()
    stream, later = play(server, [STREAM, LATER])
    thread.join()
    assert n_connections == [1]
    assert b"later" in asked[0]
    assert (stream.n_tokens, later.n_tokens) == (3, 2)
    assert later.sent_at >= stream.times[2]


def test_a_server_that_hangs_up_is_told(server):
    def serve():
        speak(server, 0, FRAME)
        server.ends[0].shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(ServerError, match="hung up"):
        play(server, [Ask(turns=[("user", "hello")], max_tokens=2)])
    thread.join()
