import json
import os
import random
import re
import select
import signal
import string
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from inferd.worker.backend import RefusedError
from inferd.worker.limits import GRAMMAR_COMPILE_BYTES, GRAMMAR_COMPILE_STACK_BYTES
from inferd.worker.llama import helper
from inferd.worker.llama.compiler import Tokens, tokenizer_of
from inferd.worker.llama.rehearsal import Rehearsal

pytestmark = pytest.mark.slow

GOOD = 'start: "a"'
NEGATIVE = 'start: %json {"const": -9223372036854775807}'
LETTERS = string.ascii_letters + string.digits
BYTES = [chr(each) for each in range(256)]
TOKENIZER = tokenizer_of(Tokens([*BYTES, "<end>", "<|x|>"], [256, 257], [256]))


def endless(pattern):
    letters = [{"pattern": pattern.format(chr(97 + n))} for n in range(26)]
    return "start: %json " + json.dumps({"type": "string", "allOf": letters})


ENDLESS = endless(".*{}.*")


@pytest.fixture
def rehearsal():
    rehearsal = Rehearsal(TOKENIZER)
    yield rehearsal
    rehearsal.close()


def pid_of(rehearsal):
    return rehearsal._process.pid if rehearsal._process else None


def fork_of(rehearsal):
    """Give the id of the process that compiles."""
    pid = pid_of(rehearsal)
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def test_one_process_tells_of_each_grammar_whether_it_compiles(rehearsal):
    assert rehearsal.error_of(GOOD) is None
    pid = pid_of(rehearsal)
    assert "unknown name" in (rehearsal.error_of("start: foo") or "")
    assert rehearsal.error_of('start: "ä\u2028\\n"') is None
    assert pid_of(rehearsal) == pid


@pytest.mark.parametrize(
    "source",
    [
        'start: <[257]> "a" <[^3,200-256]> <|x|> <end>',
        'start: "<[151657]> and <|y|>"',
        "start: /<[0-9]>|<[a-z]+>/",
    ],
)
def test_the_tokens_of_the_model_may_stand_in_a_grammar(rehearsal, source):
    assert rehearsal.error_of(source) is None


@pytest.mark.parametrize("source", ["start: <[258]>", "start: <|y|>"])
def test_no_other_tokens_may(rehearsal, source):
    assert "oken" in (rehearsal.error_of(source) or "")


@pytest.mark.parametrize("pattern", [".*{}.*", "<|.*{}.*|>", "<[0]>|.*{}.*"])
def test_a_grammar_that_takes_too_long_is_refused_and_the_next_is_not(
    rehearsal, pattern
):
    rehearsal.error_of(GOOD)
    pid, fork = pid_of(rehearsal), fork_of(rehearsal)
    with pytest.raises(RefusedError, match=r"^compiling it takes over 1 s$"):
        rehearsal.error_of(endless(pattern))
    assert not os.path.exists(f"/proc/{fork}")  # noqa: PTH110  # a process, no file
    assert rehearsal.error_of(GOOD) is None
    assert pid_of(rehearsal) == pid


def test_what_takes_long_with_many_tokens_alone_is_refused(rehearsal):
    names = [f"A{n}" for n in range(600)]
    source = f"start: ({' | '.join(names)})*\n" + "".join(
        f"{name}: /[^{LETTERS[n % 62]}]*{LETTERS[n * 7 % 62]}{LETTERS[n // 62]}"
        f"[^{LETTERS[n % 17]}]*{n}/\n"
        for n, name in enumerate(names)
    )
    assert rehearsal.error_of(source) is None
    chance = random.Random(0)  # noqa: S311  # nobody's secret
    words = ["".join(chance.choices(LETTERS, k=5)) for _ in range(30_000)]
    larger = Rehearsal(tokenizer_of(Tokens([*BYTES, "<end>", *words], [256], [256])))
    with pytest.raises(RefusedError, match="takes over 1 s"):
        larger.error_of(source)
    larger.close()


@pytest.mark.parametrize(
    "source",
    [
        NEGATIVE,
        'start: a0\na1000: "x"\n' + "".join(f"a{n}: a{n + 1}\n" for n in range(1000)),
    ],
    ids=["number", "stack"],
)
def test_a_crash_of_the_compiler_is_called_one(rehearsal, source):
    with pytest.raises(RefusedError, match=r"^the compiler crashed on it$"):
        rehearsal.error_of(source)
    assert rehearsal.error_of(GOOD) is None


def test_the_kernel_bounds_what_is_tried(rehearsal):
    rehearsal.error_of(GOOD)
    found = Path(f"/proc/{fork_of(rehearsal)}/limits").read_text()
    bounds = dict(re.findall(r"^(Max .+?) {2,}(\d+) ", found, re.MULTILINE))
    assert int(bounds["Max stack size"]) == GRAMMAR_COMPILE_STACK_BYTES
    room = int(bounds["Max address space"]) - GRAMMAR_COMPILE_BYTES
    assert 0 < room < GRAMMAR_COMPILE_BYTES
    assert bounds["Max core file size"] == "0"


def test_many_grammars_may_take_longer_together(rehearsal):
    slow = "start: %json " + json.dumps({"type": "integer", "multipleOf": 50_021})
    assert [rehearsal.error_of(slow) for _ in range(5)] == [None] * 5


def test_a_process_that_died_is_replaced(rehearsal):
    rehearsal.error_of(GOOD)
    os.kill(pid_of(rehearsal), signal.SIGKILL)
    rehearsal._process.wait()
    assert rehearsal.error_of(GOOD) is None


@pytest.mark.parametrize("dies", [[fork_of], [pid_of, fork_of]])
@pytest.mark.parametrize(
    ("signal_", "said"),
    [
        (signal.SIGKILL, "compiling it takes too much memory"),
        (signal.SIGABRT, "compiling it takes too much memory"),
        (signal.SIGSEGV, "the compiler crashed on it"),
    ],
)
def test_a_process_that_dies_over_a_grammar_refuses_it(rehearsal, dies, signal_, said):
    rehearsal.error_of(GOOD)
    os.kill(fork_of(rehearsal), signal.SIGSTOP)  # so that it has not answered yet
    pids = [each(rehearsal) for each in dies]

    def kill():
        for pid in pids:
            os.kill(pid, signal_)
            with suppress(ProcessLookupError):  # gone already
                os.kill(pid, signal.SIGCONT)

    killer = threading.Timer(0.1, kill)
    killer.start()
    with pytest.raises(RefusedError, match=f"^{said}$"):
        rehearsal.error_of(GOOD)
    killer.join()
    assert rehearsal.error_of(GOOD) is None


def test_what_compiles_ends_with_what_it_is_forked_from(rehearsal):
    rehearsal.error_of(GOOD)
    fork = fork_of(rehearsal)
    end_of_fork = os.pidfd_open(fork)
    os.kill(fork, signal.SIGSTOP)  # so that it sees no end of its input
    os.kill(pid_of(rehearsal), signal.SIGKILL)
    assert select.select([end_of_fork], [], [], 20)[0]
    os.close(end_of_fork)


def test_one_that_was_started_before_is_used():
    process = helper.start()
    rehearsal = Rehearsal(TOKENIZER, process)
    assert rehearsal.error_of(GOOD) is None
    assert pid_of(rehearsal) == process.pid
    rehearsal.close()
    assert process.returncode


def test_where_none_can_be_started_the_worker_ends(monkeypatch):
    def refuse() -> helper.Helper:
        raise PermissionError

    monkeypatch.setattr(helper, "start", refuse)
    with pytest.raises(SystemExit):
        Rehearsal(TOKENIZER).error_of(GOOD)


def test_it_ends_when_it_is_closed_or_dropped():
    for end in (Rehearsal.close, Rehearsal.__del__):
        rehearsal = Rehearsal(TOKENIZER)
        end(rehearsal)  # before it has begun
        rehearsal.error_of(GOOD)
        pid = pid_of(rehearsal)
        end(rehearsal)
        assert not os.path.exists(f"/proc/{pid}")  # noqa: PTH110
