import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from protocol.player import settle
from tests.daemon.configuration import mock
from tests.examples.clients import COMMAND_S, EXAMPLES
from tests.fakes.fds import SEALS, content_of

pytestmark = pytest.mark.slow

SAMPLES = bytes(range(256)) * 1000
SEGMENT = {"type": "text", "delta": "Hallo, ü", "start_ms": 1500, "end_ms": 2000}
FRAMES = [
    {"type": "status", "id": "1", "status": "queued", "position": 1},
    {"type": "frame", "id": "1", "block": SEGMENT},
    {"type": "done", "id": "1"},
]
REFUSAL = {"type": "error", "id": "1", "code": "queue_full", "message": "queue full"}


class Server(threading.Thread):
    """Takes one request with what comes along, and answers it."""

    def __init__(self, directory, frames) -> None:
        super().__init__()
        self.request: dict[str, object] = {}
        self.samples = b""
        self.seals = 0
        self._frames = frames
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / "infer.v2.sock"))
        self._listener.listen()

    def run(self) -> None:
        with self._listener, self._listener.accept()[0] as connection:
            line, [fd], _, _ = socket.recv_fds(connection, 65536, 4)
            self.request = json.loads(line)
            self.samples = content_of(fd)
            self.seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            os.close(fd)
            for frame in self._frames:
                connection.sendall(json.dumps(frame).encode() + b"\n")


@pytest.fixture(scope="module", params=["python", "c"])
def command(request, tmp_path_factory):
    if request.param == "python":
        return [sys.executable, EXAMPLES / "python" / "transcribe.py"]
    if not shutil.which("cc"):
        pytest.skip("no cc: the client in c is not tested")
    program = tmp_path_factory.mktemp("c") / "transcribe"
    source = EXAMPLES / "c" / "transcribe.c"
    options = ("-std=c11", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["cc", *options, "-o", program, source], check=True)
    return [program]


def run(command, directory, frames):
    server = Server(directory, frames)
    server.start()
    ended = run_alone(command, directory, SAMPLES)
    server.join()
    return server, ended


def run_alone(command, directory, samples):
    return subprocess.run(
        [*command, str(directory)],
        input=samples,
        capture_output=True,
        timeout=COMMAND_S,
        check=False,
    )


def test_samples_are_handed_over_sealed_and_segments_printed(command, short_dir):
    server, ended = run(command, short_dir, FRAMES)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.decode() == "    1.50 Hallo, ü\n"
    assert server.samples == SAMPLES
    assert server.seals == SEALS
    assert server.request["attachments"] == [
        {"kind": "audio", "id": "a", "sample_rate": 16000, "fd": 0}
    ]


@pytest.mark.parametrize(
    ("frames", "told"),
    [([REFUSAL], b"queue_full: queue full"), ([], b"the connection")],
)
def test_what_goes_wrong_is_told(command, short_dir, frames, told):
    _, ended = run(command, short_dir, frames)
    assert ended.returncode == 1
    assert ended.stderr.startswith(told)


def test_a_daemon_writes_down_what_is_handed_over(command, make_daemon):
    hears = mock(tokens=["Hal", "lo"], transcribe=True)
    daemon = make_daemon({"backend": [hears]}).start()
    settle(daemon.directory, timeout_s=COMMAND_S)
    ended = run_alone(command, daemon.directory, bytes(4 * 32_000))
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout == b"    0.00 Hal\n    1.00 lo\n"


def test_a_daemon_s_refusal_is_told(command, make_daemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    ended = run_alone(command, daemon.directory, bytes(400))
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert ended.stderr.startswith(b"attachment_unsupported: ")
