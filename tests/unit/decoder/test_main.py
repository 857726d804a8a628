import socket
import subprocess
import sys

import pytest

from inferd.decoder.messages import ANSWER, LENGTH_BYTES, Answer, Ask, framed

pytestmark = pytest.mark.slow


def receive(sock: socket.socket, n_bytes: int) -> bytes:
    return sock.recv(n_bytes, socket.MSG_WAITALL)


def answer_to(sock: socket.socket, line: bytes) -> tuple[Answer, list[bytes]]:
    ask = Ask(kind="text", n_bytes=len(line), seed=1, owner=7)
    sock.sendall(framed(ask) + line)
    n_bytes = int.from_bytes(receive(sock, LENGTH_BYTES), "little")
    answer = ANSWER.decode(receive(sock, n_bytes))
    return answer, [receive(sock, each) for each in answer.sections]


def test_it_reads_line_after_line_and_ends_with_the_socket():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-m", "inferd.decoder", str(theirs.fileno())]
        with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
            theirs.close()
            for _ in range(2):
                answer, [content] = answer_to(
                    ours, b'{"messages":[{"role":"user","content":"hello"}]}'
                )
                assert answer.request is not None
                assert b"hello" in content
            assert answer_to(ours, b"x")[0].failure is not None
            ours.close()
            assert process.wait(10) == 0
