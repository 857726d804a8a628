import json
import os
import random
import re
import signal
import socket
import string
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from inferd.backend.job import GenerateJob, Sampling, Structure, ToolSpec, Turn
from inferd.ipc.encoding import LENGTH_BYTES, decode_from_preparer, encode
from inferd.ipc.preparer import (
    CompilingGrammar,
    Configure,
    ForkExited,
    FromPreparer,
    JobReceived,
    Ready,
    Render,
    Rendered,
    RenderFailed,
    RenderRefused,
    ToPreparer,
)
from inferd.limits.worker import (
    GRAMMAR_COMPILE_BYTES,
    GRAMMAR_COMPILE_STACK_BYTES,
    RENDER_TOTAL_CPU_S,
)
from inferd.worker.llama.prepare import fork_server as module
from inferd.worker.llama.prepare.model_info import (
    PromptFormat,
    TokenTable,
    encode_model_info as encode_facts,
    prompts_of,
)
from inferd.worker.llama.prepare.write import call_prefixes_of
from tests.cases import each_case
from tests.daemon.harness import eventually

pytestmark = pytest.mark.slow

SAMPLING = Sampling(temperature=0, top_p=1, top_k=0, seed=0)
LETTERS = string.ascii_letters + string.digits
BYTES = [bytes([each]) for each in range(256)]
TOOL = ToolSpec(name="f", description="", input_schema="{}")
FACTS = PromptFormat(template=None, dialect="chatml", special={})
WORDS = TokenTable(
    token_bytes=[*BYTES, b"<end>", b"<|x|>"],
    special=[256, 257],
    ends=[256],
    special_by_text={"<|x|>": 257, "<end>": 256},
    ends_by_text={"<end>": 256},
    call_prefixes={
        each: [*each.encode()] for each in call_prefixes_of(prompts_of(FACTS))
    },
)
NEGATIVE = 'start: %json {"const": -9223372036854775807}'
DEEP = 'start: a0\na1000: "x"\n' + "".join(f"a{n}: a{n + 1}\n" for n in range(1000))


def endless(pattern):
    letters = [{"pattern": pattern.format(chr(97 + n))} for n in range(26)]
    return "start: %json " + json.dumps({"type": "string", "allOf": letters})


ENDLESS = endless(".*{}.*")


def held(source, kind="lark", **fields) -> GenerateJob:
    """Ask for an answer that is held to something."""
    structure = Structure(kind=kind, source=source)
    return job(structure=structure, **fields)


def job(**fields) -> GenerateJob:
    chosen: dict[str, Any] = {
        "turns": [Turn("user", "hi")],
        "sampling": SAMPLING,
        "max_tokens": 9,
    }
    return GenerateJob(**(chosen | fields))


class Process:
    """A preparer, and our end of its line."""

    def __init__(
        self, words: TokenTable | None = WORDS, facts: PromptFormat = FACTS
    ) -> None:
        self.sock, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module.__name__, str(fd), str(os.getpid())],
                pass_fds=[fd],
                stdout=subprocess.DEVNULL,
            )
        self.sock.settimeout(90)
        told = encode_facts(words) if words else b""
        self.send(Configure(prompt_format=encode_facts(facts), token_table=told))
        assert self.receive() == Ready()

    @property
    def fork(self) -> int:
        """The process that takes the next job; the last one may be on its way out."""
        path = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children")
        assert eventually(lambda: len(path.read_text().split()) == 1)
        return int(path.read_text())

    def send(self, message: ToPreparer) -> None:
        self.sock.sendall(encode(message))

    def receive(self) -> FromPreparer:
        n_bytes = int.from_bytes(self._read(LENGTH_BYTES), "little")
        return decode_from_preparer(self._read(n_bytes))

    def _read(self, n_bytes: int) -> bytes:
        data = b""
        while len(data) < n_bytes:
            more = self.sock.recv(n_bytes - len(data))
            assert more
            data += more
        return data

    def said(self, asked: GenerateJob, known=()) -> list[FromPreparer]:
        """Give all that it says of a job."""
        self.send(Render(ticket=7, job=asked, known_grammars=known))
        said = [self.receive()]
        while isinstance(said[-1], JobReceived | CompilingGrammar):
            said.append(self.receive())
        assert said[0] == JobReceived(ticket=7)
        return said[1:]


@contextmanager
def running(*given, **named) -> Iterator[Process]:
    process = Process(*given, **named)
    with process.sock, process.popen:
        try:
            yield process
        finally:
            process.popen.kill()


@pytest.fixture(scope="module")
def preparer():
    with running() as process:
        yield process


def test_a_prompt_is_written_without_a_vocabulary():
    with running(None) as process:
        [wrote] = process.said(job(tools=(TOOL,)))
        assert isinstance(wrote, Rendered)
        assert "f" in "".join(wrote.rendered.pieces)
        assert wrote.rendered.grammar == ""


def test_a_grammar_that_is_known_to_compile_is_not_checked_again(preparer):
    *_, first = preparer.said(held('start: "a"'))
    assert isinstance(first, Rendered)
    assert '"a"' in json.loads(first.rendered.grammar)["grammars"][1]["lark_grammar"]
    [again] = preparer.said(held('start: "a"'), first.compiled_grammars)
    assert again == first


def test_a_job_is_served_by_a_process_of_its_own(preparer):
    pid, forks = preparer.popen.pid, set()
    for _ in range(3):
        assert eventually(lambda: preparer.fork not in forks)
        forks.add(preparer.fork)
        assert isinstance(preparer.said(held('start: "a"'))[-1], Rendered)
    assert len(forks) == 3
    assert preparer.popen.pid == pid


@each_case(
    ("asked", "said"),
    [
        (held("start: foo"), "unknown name"),
        (held("start: <end>"), "may be a token that ends"),
        (held("root ::= x", kind="gbnf"), "there is no rule named x"),
        (held('{"type": "object", "oneOf": [{}, {}]}', kind="json_schema"), "oneOf is"),
        (held("{" * 5000, kind="json_schema"), "response_format.schema"),
        (
            held(
                'start: "<tool_call>"',
                tools=(TOOL,),
            ),
            "may begin as a tool call",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(preparer, asked, said):
    *_, refused = preparer.said(asked)
    assert isinstance(refused, RenderRefused)
    assert said in refused.reason


@pytest.mark.parametrize("pattern", [".*{}.*", "<|.*{}.*|>", "<[0]>|.*{}.*"])
def test_a_grammar_that_takes_too_long_ends_its_process_alone(preparer, pattern):
    fork, pid = preparer.fork, preparer.popen.pid
    *told, ended = preparer.said(held(endless(pattern)))
    assert ended == ForkExited(code=-signal.SIGPROF)
    assert told[-1] == CompilingGrammar(ticket=7, field="response_format.grammar")
    assert not os.path.exists(f"/proc/{fork}")  # noqa: PTH110  # a process, no file
    assert isinstance(preparer.said(held('start: "a"'))[-1], Rendered)
    assert preparer.popen.pid == pid


def test_what_takes_long_with_many_tokens_alone_is_refused(preparer):
    names = [f"A{n}" for n in range(600)]
    source = f"start: ({' | '.join(names)})*\n" + "".join(
        f"{name}: /[^{LETTERS[n % 62]}]*{LETTERS[n * 7 % 62]}{LETTERS[n // 62]}"
        f"[^{LETTERS[n % 17]}]*{n}/\n"
        for n, name in enumerate(names)
    )
    assert isinstance(preparer.said(held(source))[-1], Rendered)
    chance = random.Random(0)  # noqa: S311  # nobody's secret
    # so long that the lexer has more states than it may, however fast the machine is
    words = ["".join(chance.choices(LETTERS, k=200)).encode() for _ in range(3000)]
    with running(replace(WORDS, token_bytes=[*WORDS.token_bytes, *words])) as larger:
        assert isinstance(larger.said(held(source))[-1], ForkExited | RenderRefused)


def test_a_template_that_never_ends_is_ended():
    template = (
        "{{ messages[0].content }}{% if messages[0].content == 'hi' %}"
        "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}"
        "{% endif %}"
    )
    with running(None, replace(FACTS, template=template)) as process:
        [ended] = process.said(job())
        assert ended == ForkExited(code=-signal.SIGPROF)
        [wrote] = process.said(job(turns=[Turn("user", "ho")]))
        assert isinstance(wrote, Rendered)


@pytest.mark.parametrize("source", [NEGATIVE, DEEP], ids=["number", "stack"])
def test_a_crash_of_the_compiler_is_one_of_its_process(preparer, source):
    *_, ended = preparer.said(held(source))
    assert isinstance(ended, ForkExited)
    assert ended.code in (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGILL)
    assert isinstance(preparer.said(held('start: "a"'))[-1], Rendered)


def test_an_internal_error_is_reported_as_one():
    with running(replace(WORDS, call_prefixes={})) as process:
        *_, broken = process.said(held('start: "a"', tools=(TOOL,)))
        assert broken == RenderFailed(
            ticket=7, reason="preparing it failed with KeyError"
        )


def test_the_kernel_bounds_what_is_compiled(preparer):
    preparer.send(Render(ticket=7, job=held(ENDLESS)))
    limits = Path(f"/proc/{preparer.fork}/limits")
    while not isinstance(preparer.receive(), CompilingGrammar):
        pass
    assert eventually(lambda: str(GRAMMAR_COMPILE_STACK_BYTES) in limits.read_text())
    found = limits.read_text()
    assert preparer.receive() == ForkExited(code=-signal.SIGPROF)
    bounds = dict(re.findall(r"^(Max .+?) {2,}(\d+) ", found, re.MULTILINE))
    assert int(bounds["Max stack size"]) == GRAMMAR_COMPILE_STACK_BYTES
    room = int(bounds["Max address space"]) - GRAMMAR_COMPILE_BYTES
    assert 0 < room < 2 * GRAMMAR_COMPILE_BYTES
    assert int(bounds["Max cpu time"]) == RENDER_TOTAL_CPU_S
    assert bounds["Max core file size"] == "0"


def test_a_killed_fork_is_reported_and_replaced(preparer):
    fork = preparer.fork
    preparer.send(Render(ticket=7, job=held(ENDLESS)))
    assert preparer.receive() == JobReceived(ticket=7)
    os.kill(fork, signal.SIGKILL)
    while isinstance(said := preparer.receive(), CompilingGrammar):
        pass
    assert said == ForkExited(code=-signal.SIGKILL)
    assert isinstance(preparer.said(held('start: "a"'))[-1], Rendered)


def test_one_whose_fork_dies_without_a_job_ends_and_forks_no_more():
    with running() as process:
        os.kill(process.fork, signal.SIGKILL)
        assert process.popen.wait(90) == 1


def test_it_ends_with_its_line():
    with running(None) as process:
        process.sock.close()
        assert process.popen.wait(90) == 0


PARENT = f"""
import os, socket, subprocess, sys, time
ours, theirs = socket.socketpair()
command = [sys.executable, "-m", "{module.__name__}", str(theirs.fileno()), str(os.getpid())]
process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
print(process.pid, flush=True)
time.sleep(60)
"""


def test_the_preparer_ends_with_the_daemon():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as it:
        assert it.stdout
        pid = int(it.stdout.readline())
        it.kill()
    assert eventually(lambda: not os.path.exists(f"/proc/{pid}"))  # noqa: PTH110
