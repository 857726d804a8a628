import os
import socket
import threading

import pytest

from attack.asking import Line, Question, plain
from attack.measures import DONE, HUNG, LOST, REFUSED
from attack.place import BEGUN, CYCLED, STOP, Place, attack_at
from attack.users import VICTIM, FailedError, Person, User, shared_group
from tests.daemon.users import needs_root


@pytest.fixture
def person():
    user = User(VICTIM, shared_group().gr_gid)
    with Person(user) as found:
        yield found


def who(pipe):
    return os.getresuid(), os.getgroups()


def break_down(pipe):
    raise ValueError("odd")


def end(pipe):
    os._exit(1)


async def attack(place):
    place.begun()
    place.begun()
    place.tally.codes["tried"] += 1
    place.cycled()


@needs_root
def test_a_person_is_another_user_for_good(person):
    assert person.call(who) == ((VICTIM,) * 3, [shared_group().gr_gid])


def test_what_fails_there_is_told_here_and_the_person_goes_on(person):
    with pytest.raises(FailedError, match="odd"):
        person.call(break_down)
    assert person.call(who)
    with pytest.raises(FailedError, match="has ended"):
        person.call(end)


def test_an_attack_says_each_word_once_and_is_stopped(person, short_dir):
    person.begin(attack_at, attack, Place(short_dir))
    assert [person.result(), person.result()] == [BEGUN, CYCLED]
    person.tell(STOP)
    assert person.result().codes["tried"] == 1
    assert person.call(who)


# --- what the victim sees -------------------------------------------------------------


def answering(path, answer):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve():
        sock, _ = listener.accept()
        with sock, listener:
            sock.recv(1 << 16)
            for part in answer:
                sock.sendall(part)
            if not answer:
                sock.recv(1)  # say nothing, until the other one leaves

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


TOKEN = b'{"type":"token","id":"","content":"\\"type\\":\\"done\\""}\n'


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ([TOKEN, b'{"type":"do', b'ne","id":"","content":""}\n'], DONE),
        (
            [b'{"type":"error","id":"","code":"queue_full","message":""}\n'],
            "queue_full",
        ),
        ([TOKEN], LOST),
        ([], HUNG),
    ],
)
def test_a_request_ends_as_its_last_frame_says(short_dir, answer, code):
    question = plain("x")
    thread = answering(short_dir / question.leaf, answer)
    line = Line(short_dir / question.leaf, 0.1)
    sample = line.ask(question)
    assert sample.code == code
    line.close()
    thread.join()


def test_nobody_there_is_told_as_that(short_dir):
    assert Line(short_dir / "none.sock", 1).ask(Question("", b"\n")).code == REFUSED
