import json
import socket

import pytest

from tests.fakes.listener import answers, done, full_backlog, listening, says, token


def test_each_connection_has_its_dialogue(short_dir):
    path = short_dir / "s"
    with listening(path, says(token("a")), answers([token("b"), done("b")])):
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(path))
            assert json.loads(first.makefile().read())["content"] == "a"
        with socket.socket(socket.AF_UNIX) as second:
            second.connect(str(path))
            second.sendall(b"{}\n")
            lines = second.makefile().readlines()
    assert [json.loads(line)["type"] for line in lines] == ["token", "done"]
    assert not path.exists()


def test_a_failure_of_a_dialogue_fails_its_test(short_dir):
    def fail(_: socket.socket) -> None:
        raise ZeroDivisionError

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        with listening(short_dir / "s", fail), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(short_dir / "s"))


def test_a_full_backlog_takes_nobody(short_dir):
    path = short_dir / "s"
    with full_backlog(path), socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.connect(str(path))
