import os
import signal
import time
from typing import Any

import pytest

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import Structure
from inferd.limits.engine import RENDER_TIMEOUT_S
from inferd.limits.protocol import (
    GRAMMAR_MAX_ALTERNATIVES,
    GRAMMAR_MAX_BYTES,
    TOOLS_MAX_BYTES,
)
from inferd.limits.worker import (
    GRAMMAR_COMPILE_S,
    GRAMMAR_ERROR_S,
    RENDER_CPU_S,
    RENDER_CPU_S_PER_MIB,
    RENDER_TOTAL_CPU_S,
)
from inferd.worker.llama.generate.grammar_throttle import GrammarThrottle
from inferd.worker.llama.grammar.build import grammar_of
from inferd.worker.llama.grammar.constraint import GrammarVocabulary
from tests.daemon.harness import blocks, eventually, generate, llamacpp
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import LocalServer
from tests.model.changes import COMPILES_BRIEFLY
from tests.model.tiny import write_tiny_model
from tests.unit.worker.llama.running import answer, collect, job, load, steps

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def lark(grammar):
    return {"type": "lark", "grammar": grammar}


def schema(given):
    return {"type": "json_schema", "schema": given}


def all_of(pattern):
    """Ask for text in which a pattern fits with each letter."""
    patterns = [{"pattern": pattern.format(each)} for each in LETTERS]
    return schema({"type": "string", "allOf": patterns})


TOO_LONG = "compiling it takes too long"
CRASHED = "compiling it crashes the process that does it"
HOSTILE = {
    "endless": (all_of(".*{}.*"), TOO_LONG),
    "endless, like a marker": (all_of("<|.*{}.*|>"), TOO_LONG),
    "endless, like a token": (all_of("<[0]>|.*{}.*"), TOO_LONG),
    "endless, in a tool": (None, TOO_LONG),
    "deep": (
        lark(
            'start: a0\na1000: "x"\n'
            + "".join(f"a{n}: a{n + 1}\n" for n in range(1000))
        ),
        CRASHED,
    ),
    "a number": (schema({"const": -9223372036854775807}), "is not supported"),
    "a number, in Lark": (
        lark('start: %json {"const": -9223372036854775807}'),
        CRASHED,
    ),
    "a loop": (
        schema({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        "nothing can satisfy",
    ),
}

AMBIGUOUS = (
    "start: s{300}\ns: a | b | c | d\n"
    'a: "x" | "x" "x" | "x" "x" "x"\nb: a | "x" "x"\nc: a b | b\nd: c | a c'
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


def request_of(response_format):
    if response_format is not None:
        return blocks("Hi.", max_tokens=20, response_format=response_format)
    given = all_of("<|.*{}.*|>")["schema"]
    tool = {
        "name": "f",
        "description": "",
        "input_schema": {"properties": {"a": given}},
    }
    return blocks("Hi.", max_tokens=20, tools=[tool], tool_choice="required")


def doubling(n):
    """Give definitions of which each refers to the next one twice."""
    twice = {f"d{k}": {"anyOf": [{"$ref": f"#/$defs/d{k + 1}"}] * 2} for k in range(n)}
    return {**twice, f"d{n}": {"type": "string"}}


def tool_of(schema):
    return {
        "name": "f",
        "description": "",
        "input_schema": {"type": "object", **schema},
    }


MANY: dict[str, Any] = {f"p{n}": {} for n in range(150_000)}
SHARED = {"x": {"enum": [f"v{n}" for n in range(3000)]}}
TOOLS = {
    "references that double": {
        "$defs": doubling(40),
        "properties": {"a": {"$ref": "#/$defs/d0"}},
    },
    "as many as fit": {
        "$defs": doubling(8000),
        "properties": {"a": {"$ref": "#/$defs/d0"}},
    },
    "all are needed": {"properties": MANY, "required": [*MANY]},
    "needed and not there": {"required": [*MANY]},
    "the same for each": {
        "$defs": SHARED,
        "properties": {
            f"p{n}": {"type": "array", "items": {"$ref": "#/$defs/x"}}
            for n in range(9000)
        },
    },
    "long names": {
        "properties": {
            "x" * 10**6: {"properties": {f"p{n}": {} for n in range(50_000)}}
        }
    },
    "a wide ring": {"properties": {f"p{n}": {"$ref": "#"} for n in range(15)}},
    "rings in rings": {
        "$defs": {
            f"d{k}": {
                "anyOf": [
                    {"properties": {f"p{n}": {"$ref": f"#/$defs/d{(k + n) % 9}"}}}
                    for n in range(9)
                ]
            }
            for k in range(9)
        },
        "properties": {"a": {"$ref": "#/$defs/d0"}},
    },
    "a number of many digits": {
        "$defs": {"x": {"anyOf": [{}]}},
        "properties": {"a": {"$ref": "#/$defs/x/anyOf/" + "9" * 5000}},
    },
}
GRAMMARS = {
    "quotes without an end": "root ::= " + '"\\' * 32_000,
    "classes without an end": "root ::= " + "[\\" * 32_000,
    "rules of which each needs the next": "root ::= r0\n"
    + "".join(f"r{n} ::= r{n + 1}\n" for n in range(990))
    + "r990 ::= "
    + '"a" ' * 9000,
    "many digits": 'root ::= "a"{' + "9" * 60_000 + "}",
    "brackets in brackets": "root ::= " + "(" * 30_000 + '"a"' + ")" * 30_000,
}
LARKS = {
    "ids without an end": "start: " + "<[" * 32_000,
    "a long id": "start: <[" + "1" * 60_000 + "]>",
    "quotes": 'start: "a"\nb: ' + '"\\' * 30_000,
}


FAMILIES = ["qwen3-coder", "harmony", "gemma4"]


def hostile_requests(family):
    """Give requests that are made to be much work, with the socket of each.

    How a family writes calls decides what a tool costs, and not what a grammar does.
    """
    for name, schema in TOOLS.items():
        for choice in ("required", "auto"):
            request = blocks(
                "Hi.", max_tokens=2, tools=[tool_of(schema)], tool_choice=choice
            )
            yield f"{name}, {choice}", "infer.v2.sock", request
    if family != FAMILIES[0]:
        return
    for name, grammar in GRAMMARS.items():
        yield name, "infer.sock", generate("Hi.", max_tokens=2, grammar=grammar)
    for name, grammar in LARKS.items():
        asked = blocks("Hi.", max_tokens=2, response_format=lark(grammar))
        yield name, "infer.v2.sock", asked


@pytest.mark.long
@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_made_to_be_much_work_is_served_or_refused(tiny, make_daemon, family):
    backend = llamacpp(tiny, n_ctx=2048, chat_template=family)
    daemon = make_daemon({"backend": [backend]}).start()
    workers = daemon.worker_pids()
    for name, socket, request in hostile_requests(family):
        with daemon.connect(socket) as client, daemon.connect() as other:
            client.send(request)
            assert other.ask(generate("Hi.", max_tokens=2))[-1]["type"] == "done", name
            last = client.frames()[-1]
            served = last.get("type") == "done"
            assert served or last["code"] == "invalid_request", (name, last)
    assert daemon.worker_pids() == workers


@pytest.mark.model
@pytest.mark.slow
def test_a_job_whose_preparer_is_killed_is_prepared_once_more(tiny, make_daemon):
    daemon = make_daemon({"backend": [llamacpp(tiny, n_ctx=2048)]}).start()
    workers = daemon.worker_pids()
    with daemon.connect("infer.v2.sock") as client:
        assert client.ask(request_of(schema({"const": 12})))[-1]["type"] == "done"
        parent, fork = daemon.stop_fork()
        client.send(request_of(schema({"const": 13})))
        os.kill(parent, signal.SIGKILL)
        assert client.frames()[-1]["structure_complete"] is True
        assert eventually(lambda: len(daemon.preparers()) == 2)
        assert not {parent, fork} & {*daemon.preparers()}
    assert daemon.worker_pids() == workers


@pytest.mark.model
@pytest.mark.slow
def test_a_preparer_is_started_for_the_first_that_needs_it(tiny, make_daemon):
    daemon = make_daemon({"backend": [llamacpp(tiny, n_ctx=2048)]}).start()
    assert daemon.ask("hello", max_tokens=2)[-1]["type"] == "done"
    assert daemon.preparers() == []
    with daemon.connect("infer.v2.sock") as client:
        client.ask(request_of(schema({"const": 12})))
    assert len(daemon.preparers()) >= 1


@pytest.mark.model
@pytest.mark.slow
def test_no_grammar_that_is_made_to_hang_or_crash_costs_the_worker(tiny, make_daemon):
    config = {"backend": [llamacpp(tiny, n_ctx=2048)]}
    hasty, usual = make_daemon(config, environ=COMPILES_BRIEFLY), make_daemon(config)
    workers = [each.start().worker_pids() for each in (hasty, usual)]
    for name, (response_format, said) in HOSTILE.items():
        daemon = hasty if said == TOO_LONG else usual
        with daemon.connect("infer.v2.sock") as client:
            [error] = client.ask(request_of(response_format))
        assert error["code"] == "invalid_request", (name, error)
        assert said in error["message"], (name, error)
    with usual.connect("infer.v2.sock") as client:
        done = client.ask(request_of(schema({"const": 12})))[-1]
    assert done["structure_complete"] is True
    assert hasty.ask(max_tokens=2)[-1]["type"] == "done"
    assert [each.worker_pids() for each in (hasty, usual)] == workers


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.alone
def test_what_has_to_follow_is_looked_for_but_a_moment(tiny):
    vocabulary = GrammarVocabulary(load(tiny)[0]._model)
    structure = Structure(kind="lark", source=AMBIGUOUS)
    constraint = vocabulary.compile(grammar_of(structure).source)
    began_at = time.thread_time()
    constraint.lookahead()  # on the thread that decodes for everybody
    assert time.thread_time() - began_at < 0.25


@pytest.mark.model
@pytest.mark.slow
def test_a_grammar_that_takes_long_for_each_token_leaves_others_their_turn(
    tiny, monkeypatch
):
    backend = load(tiny)[0]
    slow = job(structure=Structure(kind="regex", source="[a-z]{8}"), max_tokens=20)
    alone = answer(backend, slow)
    charge = GrammarThrottle.record_grammar_time

    def charge_an_hour(dues, sequence, _):
        charge(dues, sequence, 3600)

    monkeypatch.setattr(GrammarThrottle, "record_grammar_time", charge_an_hour)
    for ticket, asked in enumerate([slow, slow, job("another", max_tokens=30)]):
        backend.start(ticket, backend.prepare(asked))
    early, late = {0: 0, 1: 0}, []
    for step in steps(backend):
        late.append(step)
        if any(end.ticket == 2 for end in step.ended):
            break
        for ticket, _ in step.pieces:
            early[ticket] = early.get(ticket, 0) + 1
    assert max(early[0], early[1]) <= 1  # what a first token takes is not known before
    given = collect(iter([*late, *steps(backend)]))
    assert len(given[2].pieces) == 30
    assert (given[0].text, given[1].text) == (alone.text, alone.text)


# --- bounds of the wire ----------------------------------------------------------------------


async def answer_to(grammar: str):
    """Ask with a grammar; give the last frame, and whether the backend saw it."""
    backend = ScriptedBackend(capabilities=BackendCapabilities(structure=True))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        return (await client.ask("r", grammar=grammar))[-1], backend.counts.asked == 1


def test_what_is_refused_late_is_refused_within_five_seconds():
    most_s = RENDER_TOTAL_CPU_S + RENDER_CPU_S_PER_MIB * TOOLS_MAX_BYTES / 2**20
    assert max(RENDER_CPU_S, GRAMMAR_COMPILE_S, GRAMMAR_ERROR_S) <= most_s < 4
    assert most_s < RENDER_TIMEOUT_S <= 5


def test_the_bounds_are_those_of_the_wire():
    assert (GRAMMAR_MAX_BYTES, GRAMMAR_MAX_ALTERNATIVES) == (64 * 1024, 4096)


@pytest.mark.parametrize(
    "grammar",
    [
        "x" * (GRAMMAR_MAX_BYTES + 1),
        "é" * (GRAMMAR_MAX_BYTES // 2 + 1),
        "|" * (GRAMMAR_MAX_ALTERNATIVES + 1),
    ],
)
async def test_a_grammar_over_a_bound_never_reaches_a_backend(grammar, autojump_clock):
    frame, was_seen = await answer_to(grammar)
    assert (frame["id"], frame["code"]) == ("r", "invalid_request")
    assert "grammar" in frame["message"]
    assert not was_seen


@pytest.mark.parametrize(
    "grammar", ["x" * GRAMMAR_MAX_BYTES, "|" * GRAMMAR_MAX_ALTERNATIVES]
)
async def test_a_grammar_at_a_bound_does(grammar, autojump_clock):
    frame, was_seen = await answer_to(grammar)
    assert frame["type"] == "done"
    assert was_seen
