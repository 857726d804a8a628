import array
import fcntl
import json
import os
import socket
from threading import Thread

import pytest

from bench.load.speech import ServerError
from bench.sounds import Sound
from bench.transcribe import SEALS, heard_by_daemon

SOUND = Sound(path=None, samples=array.array("f", [0.5, -0.5] * 8000).tobytes())  # type: ignore[arg-type]  # it is not looked at
BLOCK = {"type": "frame", "id": "speech"}


class Server:
    """Takes one request, and answers with frames that are given."""

    def __init__(self, path, answers):
        self._listener = socket.create_server(str(path), family=socket.AF_UNIX)
        self._answers = answers
        self._thread = Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()
        self._listener.close()

    def _serve(self):
        connection, _ = self._listener.accept()
        with connection:
            line, descriptors, _, _ = socket.recv_fds(connection, 65536, 4)
            self.request = json.loads(line)
            [memory] = descriptors
            self.seals = fcntl.fcntl(memory, fcntl.F_GET_SEALS)
            self.samples = os.pread(memory, 1 << 20, 0)
            os.close(memory)
            for answer in self._answers:
                connection.sendall(json.dumps(answer).encode() + b"\n")


def delta(text):
    return {**BLOCK, "block": {"type": "text", "delta": text}}


@pytest.fixture
def path(short_dir):
    return short_dir / "s.sock"


def test_the_sound_goes_in_a_sealed_descriptor(path):
    with Server(path, [{"type": "done"}]) as server:
        heard_by_daemon(path, SOUND, language="de")
    assert server.samples == SOUND.samples
    assert server.seals & SEALS == SEALS
    assert server.request["language"] == "de"
    assert server.request["attachments"] == [
        {"kind": "audio", "id": "sound", "sample_rate": 16000, "fd": 0}
    ]


def test_the_deltas_are_the_text_and_the_first_is_timed(path):
    answers = [{"type": "status"}, delta(" One"), delta(" two."), {"type": "done"}]
    with Server(path, answers):
        heard = heard_by_daemon(path, SOUND)
    assert heard.text == "One two."
    assert 0 < heard.first_s <= heard.seconds


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            [delta("One"), {"type": "error", "message": "no such sound"}],
            "no such sound",
        ),
        ([delta("One")], "the daemon hung up"),
    ],
)
def test_an_answer_without_an_end_is_none(path, answers, message):
    with Server(path, answers):
        with pytest.raises(ServerError, match=message):
            heard_by_daemon(path, SOUND)
