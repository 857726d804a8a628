import json
import socket
from base64 import b64encode

from inferd.client.memfd import Memfd
from inferd.client.surfaces import BLOCKS
from tests.fakes.hearing import hear, heard, partial, receive, segment
from tests.fakes.streams import to_line


def append(samples, *, end=False):
    coded = b64encode(samples).decode()
    return to_line({"type": "append", "id": "r", "bytes": coded, "end": end})


def test_a_line_comes_with_what_is_in_its_memory():
    ours, theirs = socket.socketpair()
    with ours, theirs, Memfd() as memory:
        memory.write(b"contents")
        socket.send_fds(ours, [b'{"a":1}\n'], [memory.fd])
        ours.sendall(b'{"b":2}\n')
        assert receive(theirs) == ({"a": 1}, [b"contents"])
        assert receive(theirs) == ({"b": 2}, [])


def test_sound_is_heard_to_its_end():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(append(b"ab") + append(b"") + append(b"c", end=True) + b"more")
        sound, lines = hear(theirs)
    assert sound == b"abc"
    assert len(lines) == 3


def test_what_it_says_is_of_the_protocol():
    for frame in (segment("a", 0, 1), partial("a", 0, 1), heard()):
        assert BLOCKS.read(json.dumps(frame).encode()) is not None
