import time

import pytest

from inferd.capabilities import BackendCapabilities
from inferd.job import Structure
from inferd.limits import GRAMMAR_MAX_ALTERNATIVES, GRAMMAR_MAX_BYTES
from inferd.worker.llama.constraint import Vocabulary
from inferd.worker.llama.grammar import grammar_of
from tests.daemon.harness import blocks, llamacpp
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import House
from tests.model.tiny import write_tiny_model
from tests.unit.worker.llama.running import load

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def lark(grammar):
    return {"type": "lark", "grammar": grammar}


def schema(given):
    return {"type": "json_schema", "schema": given}


def all_of(pattern):
    """Ask for text in which a pattern fits with each letter."""
    patterns = [{"pattern": pattern.format(each)} for each in LETTERS]
    return schema({"type": "string", "allOf": patterns})


TOO_LONG = "compiling it takes over 1 s"
CRASHED = "the compiler crashed on it"
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


@pytest.mark.model
@pytest.mark.slow
def test_no_grammar_that_is_made_to_hang_or_crash_costs_the_worker(tiny, make_daemon):
    daemon = make_daemon({"backend": [llamacpp(tiny, n_ctx=2048)]}).start()
    workers = daemon.worker_pids()
    with daemon.connect("infer.v2.sock") as client:
        for name, (response_format, said) in HOSTILE.items():
            [error] = client.ask(request_of(response_format))
            assert error["code"] == "invalid_request", (name, error)
            assert said in error["message"], (name, error)
        done = client.ask(request_of(schema({"const": 12})))[-1]
    assert done["structure_complete"] is True
    assert daemon.worker_pids() == workers


@pytest.mark.model
@pytest.mark.slow
def test_what_has_to_follow_is_looked_for_but_a_moment(tiny):
    vocabulary = Vocabulary(load(tiny)[0]._model)
    structure = Structure(kind="lark", source=AMBIGUOUS)
    constraint = vocabulary.compile(grammar_of(structure))
    vocabulary.close()
    began_at = time.thread_time()
    constraint.ahead()  # on the thread that decodes for everybody
    assert time.thread_time() - began_at < 0.25


# --- bounds of the wire ----------------------------------------------------------------------


async def answer_to(grammar: str):
    """Ask with a grammar; give the last frame, and whether the backend saw it."""
    backend = ScriptedBackend(capabilities=BackendCapabilities(structure=True))
    async with House(backend).opened() as house, house.connect() as client:
        return (await client.ask("r", grammar=grammar))[-1], backend.counts.asked == 1


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
