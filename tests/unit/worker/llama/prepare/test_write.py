"""What a client can ask for by size: each construct, doubled, in each family's words."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from cProfile import Profile
from typing import Any

import pytest

from inferd.backend.job import (
    GenerateJob,
    PastCall,
    Sampling,
    Structure,
    ToolChoice,
    ToolSpec,
    Turn,
)
from inferd.dialects import step_limit
from inferd.dialects.prompt.renderer import PromptRenderer
from inferd.dialects.registry import DIALECTS
from inferd.dialects.step_limit import max_steps
from inferd.limits.prompts import PROMPT_BASE_CHARS, PROMPT_CHARS_PER_CHAR
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.build import Grammar
from inferd.worker.llama.grammar.checker import GrammarChecker
from inferd.worker.llama.grammar.compiler import tokenizer_of
from inferd.worker.llama.prepare.model_info import TokenTable
from inferd.worker.llama.prepare.write import (
    GrammarWriter,
    call_prefixes_of,
    source_chars,
    write_prompt,
)
from tests.cases import each_case

SAMPLING = Sampling(temperature=0, top_p=1, top_k=0, seed=0)
SIZES = (160, 320)
BASE_STEPS = 30_000
"""As much less than the limit as these sizes are less than what a client may send: with
the limit itself, what grows by the square would show from a thousand on."""
MANY = 2**15


def job(**fields) -> GenerateJob:
    chosen: dict[str, Any] = {
        "turns": [Turn("user", "hi")],
        "sampling": SAMPLING,
        "max_tokens": 9,
    }
    return GenerateJob(**(chosen | fields))


def calling(schema, n=1, **fields) -> GenerateJob:
    """Ask for a call of some tools with a schema."""
    tools = tuple(
        ToolSpec(name=f"f{k}", description="d", input_schema=json.dumps(schema))
        for k in range(n)
    )
    return job(tools=tools, tool_choice=ToolChoice("required"), **fields)


def held(kind, source) -> GenerateJob:
    return job(structure=Structure(kind=kind, source=source))


def named(n):
    return {f"p{k}": {"type": "string"} for k in range(n)}


def doubling(n):
    """Give definitions of which each refers to the next one twice."""
    twice = {f"d{k}": {"anyOf": [{"$ref": f"#/$defs/d{k + 1}"}] * 2} for k in range(n)}
    return {**twice, f"d{n}": {"type": "string"}}


def nested(n, schema):
    for _ in range(n):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def listed(n, value):
    for _ in range(n):
        value = [value]
    return value


SCHEMAS: dict[str, Callable[[int], dict[str, object]]] = {
    "properties": lambda n: {"properties": named(n)},
    "needed": lambda n: {"properties": named(n), "required": [*named(n)]},
    "needed, unlisted": lambda n: {"required": [*named(n)]},
    "values": lambda n: {"properties": {"a": {"enum": [f"v{k}" for k in range(n)]}}},
    "kinds": lambda n: {"properties": {"a": {"type": ["array", "null"] * n}}},
    "alternatives": lambda n: {
        "properties": {"a": {"anyOf": [{"const": f"v{k}"} for k in range(n)]}}
    },
    "exclusive": lambda n: {
        "properties": {"a": {"oneOf": [{"type": "string"}, {"enum": [*range(n)]}]}}
    },
    "alternatives in each other": lambda n: {
        "$defs": doubling(n),
        "properties": {"a": {"$ref": "#/$defs/d0"}},
    },
    "references to one": lambda n: {
        "$defs": {"x": {"enum": [f"v{k}" for k in range(n)]}},
        "properties": {f"p{k}": {"$ref": "#/$defs/x"} for k in range(n)},
    },
    "arrays beside what they refer to": lambda n: {
        "$defs": {"x": {"enum": [f"v{k}" for k in range(n)]}},
        "properties": {
            f"p{k}": {"type": "array", "items": {"$ref": "#/$defs/x"}} for k in range(n)
        },
    },
    "itself": lambda n: {
        "$defs": {
            "x": {"properties": {f"p{k}": {"$ref": "#/$defs/x"} for k in range(n)}}
        },
        "properties": {"a": {"$ref": "#/$defs/x"}},
    },
    "a wide ring": lambda n: {"properties": {f"p{k}": {"$ref": "#"} for k in range(n)}},
    "rings in rings": lambda n: {
        "$defs": {
            f"d{j}": {
                "type": "object",
                "properties": {
                    f"p{k}": {"$ref": f"#/$defs/d{(j + k) % 8}"} for k in range(n // 8)
                },
            }
            for j in range(8)
        },
        "properties": {"a": {"$ref": "#/$defs/d0"}},
    },
    "rings of alternatives": lambda n: {
        "$defs": {
            f"d{j}": {
                "anyOf": [
                    {"properties": {f"p{k}": {"$ref": f"#/$defs/d{(j + k) % 8}"}}}
                    for k in range(n // 8)
                ]
            }
            for j in range(8)
        },
        "properties": {"a": {"$ref": "#/$defs/d0"}},
    },
    "arrays of arrays": lambda n: {
        "$defs": {
            f"d{j}": {
                "type": "object",
                "properties": {
                    f"p{k}": {"type": "array", "items": {"$ref": f"#/$defs/d{j + 1}"}}
                    for k in range(n // 8)
                },
            }
            for j in range(8)
        },
        "properties": {"a": {"$ref": "#/$defs/d0"}},
    },
    "words beside references": lambda n: {
        "$defs": {"x": {"description": "word " * n, "default": "word " * n}},
        "properties": {f"p{k}": {"$ref": "#/$defs/x", "title": "t"} for k in range(n)},
    },
    "lists in lists": lambda n: {
        "properties": {"a": {"const": listed(min(n, 400), ["x"] * n)}}
    },
    "depth": lambda n: nested(n // 60, {"type": "string"}),
    "long names": lambda n: {
        "properties": {"x" * n * 8: {"type": "object", "properties": named(n)}}
    },
    "patterns": lambda n: {
        "properties": {"a": {"type": "string", "pattern": "(a|b)" * n}}
    },
    "words": lambda n: {"properties": {"a": {"description": "word " * n}}},
    "numbers": lambda n: {
        "properties": {"a": {"enum": [[k, {"b": k}] for k in range(n)]}}
    },
    "places": lambda n: {
        "properties": {"a": {"$ref": "#/$defs/x/anyOf/" + "9" * n}},
        "$defs": {"x": {"anyOf": [{}]}},
    },
}
CALLS = tuple(
    PastCall(id=f"c{k}", name="f0", arguments='{"a": 1}') for k in range(9000)
)
TALKS: dict[str, Callable[[int], GenerateJob]] = {
    "turns": lambda n: job(turns=[Turn("user", "a"), Turn("assistant", "b")] * n),
    "systems": lambda n: job(turns=[Turn("system", "a"), Turn("user", "b")] * n),
    "text": lambda n: job(turns=[Turn("user", "word " * n)]),
    "markers": lambda n: job(turns=[Turn("user", "<|im_start|><" * n)]),
    "tools": lambda n: calling({"properties": {"a": {}}}, n),
    "calls": lambda n: job(turns=[Turn("user", "a"), Turn("assistant", "", CALLS[:n])]),
    "results": lambda n: job(
        turns=[
            Turn("user", "a"),
            Turn("assistant", "", CALLS[:n]),
            *(Turn("tool", "r", call_id=f"c{n - k}", name="f0") for k in range(n)),
        ]
    ),
}
TEXTS: dict[str, Callable[[int], tuple[str, str]]] = {
    "rules": lambda n: (
        "gbnf",
        "".join(f"r{k} ::= r{k - 1}\n" for k in range(n // 5, 0, -1))
        + 'r0 ::= "x"\nroot ::= r1',
    ),
    "rules, forwards": lambda n: (
        "gbnf",
        "root ::= r0\n"
        + "".join(f"r{k} ::= r{k + 1}\n" for k in range(n // 5))
        + f'r{n // 5} ::= "x"',
    ),
    "literals": lambda n: ("gbnf", "root ::= " + '"a" ' * n),
    "classes": lambda n: ("gbnf", "root ::= " + "[a-z]{2} " * n),
    "alternatives": lambda n: ("gbnf", "root ::= " + '"a" | ' * n + '"b"'),
    "groups": lambda n: ("gbnf", "root ::= " + '("a")* ' * n),
    "comments": lambda n: ("gbnf", 'root ::= "a"\n' + "# a\n" * n),
    "nested groups": lambda n: ("gbnf", "root ::= " + "(" * n + '"a"' + ")" * n),
    "rules of Lark": lambda n: (
        "lark",
        "start: a0\n" + "".join(f"a{k}: a{k + 1}\n" for k in range(n)) + f'a{n}: "x"',
    ),
    "tokens of Lark": lambda n: ("lark", "start: " + "<[1,2-3]> " * n),
    "ids of Lark": lambda n: ("lark", "start: <[" + "1," * n + "2]>"),
    "a long id of Lark": lambda n: ("lark", "start: <[" + "1" * n * 9 + "]>"),
    "a pattern": lambda n: ("regex", "(a|b)" * n),
    "slashes": lambda n: ("regex", "/" * n),
}


def _calling(of: Callable[[int], dict[str, object]]) -> Callable[[int], GenerateJob]:
    return lambda n: calling(of(n))


def _held_to(of: Callable[[int], dict[str, object]]) -> Callable[[int], GenerateJob]:
    return lambda n: held("json_schema", json.dumps(of(n)))


def _held(of: Callable[[int], tuple[str, str]]) -> Callable[[int], GenerateJob]:
    return lambda n: held(*of(n))


CASES = {
    **{f"schema: {name}": _calling(of) for name, of in SCHEMAS.items()},
    **{f"talk: {name}": of for name, of in TALKS.items()},
}
STRUCTURES = {
    **{f"schema: {name}": _held_to(of) for name, of in SCHEMAS.items()},
    **{f"text: {name}": _held(of) for name, of in TEXTS.items()},
}


class Untried(GrammarChecker):
    """Takes every grammar for one that compiles: that is not Python's work."""

    def __init__(self) -> None:
        super().__init__(TOKENIZER)
        self.n_chars = 0

    def check(self, grammar: Grammar) -> None:
        self.n_chars += len(grammar.source) + sum(len(e.source) for e in grammar.parts)


WORDS = TokenTable(
    token_bytes=[bytes([k]) for k in range(256)] + [b"<end>"], special=[256], ends=[256]
)
TOKENIZER = tokenizer_of(WORDS)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count what is called inside, in Python and in C."""
    n_calls = [0]
    profile = Profile()
    profile.enable()
    try:
        yield n_calls
    finally:
        profile.disable()
        n_calls[0] = sum(entry.callcount for entry in profile.getstats())


def steps_of(dialect: str, asked: GenerateJob) -> tuple[int, bool]:
    """Give the calls and characters that writing a job takes, and whether it is refused."""
    prompts = PromptRenderer(None, DIALECTS[dialect])
    grammars = GrammarWriter(prompts, WORDS, TOKENIZER)
    trial = Untried()
    n_chars = 0
    is_refused = False
    with counted() as n_calls:
        try:
            written = write_prompt(prompts, asked)
            n_chars = sum(map(len, written.pieces))
            grammars.write(asked, trial, open_thought=written.open_thought)
        except RefusedError as error:
            is_refused = bool(str(error))
    return n_calls[0] + n_chars + trial.n_chars, is_refused


@pytest.fixture
def small_base(monkeypatch):
    """Have the limit of steps follow from the request's size, though it is small."""
    monkeypatch.setattr(step_limit, "TRANSLATION_STEPS", BASE_STEPS)


def check_growth(dialect: str, of: Callable[[int], GenerateJob]) -> None:
    """See that twice as much takes twice as many steps, or no more than the bound."""
    half, whole = SIZES
    asked = of(whole)
    steps, _ = steps_of(dialect, asked)
    if steps > 4 * max_steps(source_chars(asked)):
        before, _ = steps_of(dialect, of(half))
        assert steps <= 2.5 * before


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("small_base")
@each_case("dialect", sorted(DIALECTS), shards=8)
@each_case("name", CASES)
def test_twice_as_much_takes_twice_as_many_steps_or_is_refused(dialect, name):
    check_growth(dialect, CASES[name])


@pytest.mark.slow
@pytest.mark.usefixtures("small_base")
@each_case("name", STRUCTURES, shards=2)
def test_so_do_structures(name):
    check_growth("chatml", STRUCTURES[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ['"\\', "[\\", "{1", '"', "[", "/\\", "<[", "<a", "a ", "# ", "//", "stop ", "\\"],
)
@pytest.mark.parametrize("kind", ["gbnf", "lark", "regex"])
def test_of_what_has_no_end_the_end_is_looked_for_once(kind, text):
    # by the square of all characters this would take minutes each
    begin = {"gbnf": "root ::= ", "lark": "start: ", "regex": ""}[kind]
    steps, _ = steps_of("chatml", held(kind, begin + text * MANY))
    assert steps < 100 * MANY


@pytest.mark.slow
def test_a_text_that_is_nearly_json_is_searched_once():
    deep = "[" * 100_000 + '"\\' * MANY
    tool = ToolSpec(name="f", description="", input_schema=deep)
    steps, _ = steps_of("chatml", job(tools=(tool,)))
    assert steps < 100 * MANY


def prompt_of(dialect: str, asked: GenerateJob) -> int:
    """Give the characters of a prompt."""
    written = write_prompt(PromptRenderer(None, DIALECTS[dialect]), asked)
    return sum(map(len, written.pieces))


@pytest.mark.long
@pytest.mark.slow
@each_case("dialect", sorted(DIALECTS), shards=8)
@each_case("name", SCHEMAS)
def test_a_prompt_much_longer_than_its_request_is_refused(dialect, name):
    for n, thinks in ((16, False), (16, True), (128, False), (1024, True)):
        asked = calling(SCHEMAS[name](n), thinks=thinks)
        with suppress(RefusedError):
            n_chars = prompt_of(dialect, asked)
            assert n_chars <= PROMPT_BASE_CHARS + PROMPT_CHARS_PER_CHAR * source_chars(
                asked
            )


@each_case("dialect", sorted(DIALECTS), shards=3)
@each_case("name", ["turns", "systems", "text", "tools", "calls", "results"])
def test_no_conversation_is_out_of_proportion(dialect, name):
    assert prompt_of(dialect, TALKS[name](1000))


@each_case("dialect", sorted(DIALECTS))
@each_case(
    "name", ["a wide ring", "rings in rings", "itself", "references to one", "words"]
)
def test_references_are_left_out_before_anything_is_refused(dialect, name):
    assert prompt_of(dialect, calling(SCHEMAS[name](64)))


def test_what_is_out_of_proportion_is_refused_by_its_field():
    asked = calling(SCHEMAS["lists in lists"](200))
    with pytest.raises(RefusedError, match="^tools: they make a prompt of [0-9]+ char"):
        prompt_of("llama3", asked)


def test_what_is_indented_is_counted_while_it_is_written():
    asked = calling(SCHEMAS["lists in lists"](1024))
    with pytest.raises(RefusedError, match="^tools: its references or repetitions"):
        prompt_of("llama3", asked)


def test_a_diamond_of_references_is_one_alternative():
    prompts = PromptRenderer(None, DIALECTS["qwen3-coder"])
    trial = Untried()
    asked = calling(SCHEMAS["alternatives in each other"](7))
    GrammarWriter(prompts, WORDS, TOKENIZER).write(asked, trial, open_thought="")
    assert trial.n_chars < 3000


def test_what_repeats_too_much_is_refused_by_its_field():
    asked = calling(SCHEMAS["arrays beside what they refer to"](2000))
    prompts = PromptRenderer(None, DIALECTS["qwen3-coder"])
    with pytest.raises(RefusedError, match=r"^response_format and tools: its refer"):
        GrammarWriter(prompts, WORDS, TOKENIZER).write(
            asked, Untried(), open_thought=""
        )


def test_the_ways_in_which_calls_begin_are_told_for_each_family():
    for dialect in DIALECTS.values():
        openings = call_prefixes_of(PromptRenderer(None, dialect))
        assert openings
        assert all(openings)
