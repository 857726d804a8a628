import json
import os
import signal
import threading

import pytest

from inferd.worker.backend import RefusedError
from inferd.worker.llama.rehearsal import Rehearsal

pytestmark = pytest.mark.slow

GOOD = 'start: "a"'
ENDLESS = "start: %json " + json.dumps(
    {"type": "string", "allOf": [{"pattern": f".*{chr(97 + n)}.*"} for n in range(26)]}
)


@pytest.fixture
def rehearsal():
    rehearsal = Rehearsal()
    yield rehearsal
    rehearsal.close()


def pid_of(rehearsal):
    return rehearsal._process.pid if rehearsal._process else None


def test_one_process_tells_of_each_grammar_whether_it_compiles(rehearsal):
    assert rehearsal.error_of(GOOD) is None
    pid = pid_of(rehearsal)
    assert "unknown name" in (rehearsal.error_of("start: foo") or "")
    assert rehearsal.error_of('start: "ä\u2028\\n"') is None
    assert pid_of(rehearsal) == pid


@pytest.mark.parametrize(
    "source",
    [
        'start: <[151657]> "a" <[^3,200000-200010]>',
        'start: <|tool_call|> "a"',
        'start: "<[151657]> and <|x|>"',
        "start: /<[0-9]>|<[a-z]+>/",
    ],
)
def test_the_tokens_of_any_model_may_stand_in_a_grammar(rehearsal, source):
    assert rehearsal.error_of(source) is None


def test_a_grammar_that_takes_too_long_is_refused_and_the_next_is_not(rehearsal):
    rehearsal.error_of(GOOD)
    pid = pid_of(rehearsal)
    with pytest.raises(RefusedError, match=r"^compiling it takes over 1 s$"):
        rehearsal.error_of(ENDLESS)
    assert not os.path.exists(f"/proc/{pid}")  # noqa: PTH110  # a process, no file
    assert rehearsal.error_of(GOOD) is None


def test_many_grammars_may_take_longer_together(rehearsal):
    slow = "start: %json " + json.dumps({"type": "integer", "multipleOf": 50_021})
    assert [rehearsal.error_of(slow) for _ in range(5)] == [None] * 5


def test_a_process_that_died_is_replaced(rehearsal):
    rehearsal.error_of(GOOD)
    os.kill(pid_of(rehearsal), signal.SIGKILL)
    rehearsal._process.wait()
    assert rehearsal.error_of(GOOD) is None


def test_a_process_that_dies_over_a_grammar_refuses_it(rehearsal):
    rehearsal.error_of(GOOD)
    os.kill(pid_of(rehearsal), signal.SIGSTOP)  # so that it has not answered yet
    killer = threading.Timer(0.1, os.kill, (pid_of(rehearsal), signal.SIGKILL))
    killer.start()
    with pytest.raises(RefusedError, match="too much memory"):
        rehearsal.error_of(GOOD)
    killer.join()
    assert rehearsal.error_of(GOOD) is None


def test_it_ends_when_it_is_closed_or_dropped():
    for end in (Rehearsal.close, Rehearsal.__del__):
        rehearsal = Rehearsal()
        end(rehearsal)  # before it has begun
        rehearsal.error_of(GOOD)
        pid = pid_of(rehearsal)
        end(rehearsal)
        assert not os.path.exists(f"/proc/{pid}")  # noqa: PTH110
