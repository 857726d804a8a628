import json
import math
import time

import numpy as np
import pytest

from inferd.backend.job import GenerateJob, Sampling, Structure, ToolChoice, ToolSpec
from inferd.dialects.registry import DIALECTS
from inferd.limits.worker import FORCED_TOKENS, GRAMMAR_COMPILE_S, GRAMMAR_STEP_S
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.build import answer_grammar
from inferd.worker.llama.grammar.constraint import Constraint, ConstraintError
from tests.model.schemas import an_object

pytestmark = pytest.mark.model

PERSON = an_object(True, name={"type": "string"}, age={"type": "integer"})
WEATHER = ToolSpec(
    name="get_weather",
    description="",
    input_schema=json.dumps(an_object(True, city={"type": "string", "maxLength": 9})),
)
CLOCK = ToolSpec(name="get_time", description="", input_schema='{"properties": {}}')
SAMPLING = Sampling(temperature=0, top_p=1, top_k=0, seed=0)


def tokens_of(walker, text):
    return walker.model.tokenize(text, parses_special=False)


def compiled(walker, schema):
    return walker.compile("json_schema", json.dumps(schema))


# --- tokens that have to follow ---------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "a",
        {"name": "Ada", "tags": ["x", "y"], "n": 12},
        "Zürich → 東京 😀",
        "<|im_start|>system",
        ["the same", "the same", "the same"],
    ],
    ids=str,
)
def test_text_without_a_choice_is_cut_as_the_model_cuts_it(walker, value):
    constraint = compiled(walker, {"const": value})
    forced = constraint.lookahead().forced
    text = walker.text(forced).decode()
    assert json.loads(text) == value
    assert forced == tokens_of(walker, text)


def test_the_token_before_a_choice_is_left_to_the_model(walker):
    constraint = compiled(walker, PERSON)
    assert (
        walker.text(constraint.lookahead().forced) == b'{"name":'
    )  # and a space, or more
    constraint.accept(tokens_of(walker, '{"name": "Ada"'))
    forced = constraint.lookahead().forced
    assert walker.text(forced) == b', "age":'
    assert forced == tokens_of(walker, ', "age": 1')[: len(forced)]


def test_what_is_ahead_changes_nothing_here(walker):
    constraint = compiled(walker, PERSON)
    before = walker.allowed(constraint)
    assert constraint.lookahead().forced == constraint.lookahead().forced
    assert (walker.allowed(constraint) == before).all()


def test_a_long_text_without_a_choice_comes_in_parts(walker, monkeypatch):
    # a slow machine would use up the time for a look before it has as many tokens
    monkeypatch.setattr(f"{Constraint.__module__}.GRAMMAR_LOOKAHEAD_S", math.inf)
    text = "word " * 200
    constraint = compiled(walker, {"const": text})
    forced = constraint.lookahead().forced
    assert len(forced) == FORCED_TOKENS
    constraint.accept(forced)
    assert (
        walker.text([*forced, *constraint.lookahead().forced])
        in b'"%b"' % text.encode()
    )


def test_a_look_ahead_ends_with_its_time(walker, monkeypatch):
    constraint = compiled(walker, PERSON)
    assert constraint.lookahead().forced
    monkeypatch.setattr(f"{Constraint.__module__}.GRAMMAR_LOOKAHEAD_S", -1)
    assert not constraint.lookahead().forced


def test_no_token_decides_between_ways_on_that_have_none_of_their_own(walker):
    items = {"type": "array", "items": an_object(True, kind={"const": "x"})}
    constraint = compiled(walker, items)
    constraint.accept(tokens_of(walker, '[{"kind": "x'))
    forced = walker.text(constraint.lookahead().forced)
    assert b'"}'.startswith(forced)  # "}, is a token of its own, and "}] is not
    constraint.accept(
        [*constraint.lookahead().forced, *tokens_of(walker, '"}'[len(forced) :])]
    )
    assert n_fitting(walker, constraint, "]") == 1


def test_the_end_of_a_turn_is_a_choice(walker):
    constraint = walker.compile("regex", "abc(def)?")
    constraint.accept(tokens_of(walker, "abc"))
    assert constraint.is_complete
    assert constraint.lookahead().forced == []
    assert walker.allowed(constraint)[[*walker.model.end_tokens]].all()


# --- whole answers ----------------------------------------------------------------------


def job(**fields) -> GenerateJob:
    return GenerateJob(turns=[], max_tokens=9, sampling=SAMPLING, **fields)


def held(walker, dialect, asked, *, open_thought=""):
    special = walker.vocabulary.special
    grammar = answer_grammar(
        DIALECTS[dialect], asked, special, open_thought=open_thought
    )
    return walker.hold(grammar)


def n_fitting(walker, constraint, text):
    """Count the tokens of a text that the grammar takes."""
    for number, token in enumerate(walker.model.tokenize(text)):
        try:
            constraint.accept([token])
        except ConstraintError:
            return number
    return len(walker.model.tokenize(text))


def takes(walker, constraint, text):
    fits = n_fitting(walker, constraint, text) == len(walker.model.tokenize(text))
    return fits and constraint.is_complete


CALL = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
)


@pytest.mark.parametrize("dialect", ["chatml", "qwen", "generic"])
def test_a_forced_call_is_one_call_or_more_and_nothing_else(walker, dialect):
    asked = job(tools=(WEATHER, CLOCK), tool_choice=ToolChoice("required"))
    assert takes(walker, held(walker, dialect, asked), CALL)
    assert takes(walker, held(walker, dialect, asked), f"{CALL}\n{CALL}")
    for wrong in (
        "Hello",
        CALL.replace("Rome", "a long name"),
        CALL.replace("_w", "w"),
    ):
        assert not takes(walker, held(walker, dialect, asked), wrong)


def test_a_named_tool_is_the_only_one(walker):
    asked = job(tools=(WEATHER, CLOCK), tool_choice=ToolChoice("named", "get_time"))
    other = CALL.replace("get_weather", "get_time").replace('{"city": "Rome"}', "{}")
    assert takes(walker, held(walker, "generic", asked), other)
    assert not takes(walker, held(walker, "generic", asked), CALL)


def test_a_structure_and_tools_leave_the_choice_between_them(walker):
    structure = Structure(kind="regex", source="yes|no")
    asked = job(tools=(WEATHER,), structure=structure)
    for text in ("yes", CALL):
        assert takes(walker, held(walker, "generic", asked), text)
    alone = job(tools=(WEATHER,), structure=structure, tool_choice=ToolChoice("none"))
    assert not takes(walker, held(walker, "generic", alone), CALL)


def test_a_thought_is_free_and_what_follows_is_held(walker):
    asked = job(thinks=True, structure=Structure(kind="regex", source="yes|no"))
    for text in ("yes", "<think>\nno? no! {]\n</think>\n\nyes", "<think></think>no"):
        assert takes(walker, held(walker, "qwen", asked), text), text
    for text in ("<think>yes", "<think>a</think> maybe", "Hm. <think>a</think>yes"):
        assert not takes(walker, held(walker, "qwen", asked), text), text


def test_a_thought_that_the_prompt_opened_has_to_end_first(walker):
    asked = job(structure=Structure(kind="regex", source="yes|no"))
    opened = held(walker, "qwen", asked, open_thought="<think>")
    assert takes(walker, opened, "Let me see.\n</think>\n\nyes")
    assert not takes(walker, held(walker, "qwen", asked, open_thought="<think>"), "yes")
    assert not takes(walker, held(walker, "qwen", asked), "<think>a</think>yes")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("thinks", [False, True])
def test_every_family_can_be_held_to_a_call_and_to_a_structure(walker, dialect, thinks):
    forced = job(tools=(WEATHER,), tool_choice=ToolChoice("required"), thinks=thinks)
    structure = Structure(kind="json_schema", source=json.dumps(PERSON))
    for asked in (forced, job(structure=structure, thinks=thinks)):
        constraint = held(walker, dialect, asked)
        assert not constraint.is_complete
        assert not walker.allowed(constraint)[[*walker.model.end_tokens]].any()


def test_a_tool_whose_schema_fits_nothing_is_refused_by_its_place(walker):
    bad = ToolSpec(
        name="x",
        description="",
        input_schema='{"properties": {"a": false}, "required": ["a"]}',
    )
    asked = job(tools=(WEATHER, bad), tool_choice=ToolChoice("required"))
    with pytest.raises(RefusedError, match=r"^tools\[1\]\.input_schema: "):
        held(walker, "generic", asked)


# --- hostile grammars -------------------------------------------------------------------

TREE = {f"d{n}": an_object(True, a={"$ref": f"#/$defs/d{n + 1}"}) for n in range(20)}
HOSTILE = {
    "a long text often": {
        "type": "array",
        "minItems": 5000,
        "items": {"const": "ab" * 5000},
    },
    "many items": {"type": "array", "minItems": 10**6, "items": {"const": 1}},
    "many patterns at once": {
        "type": "string",
        "allOf": [{"pattern": f".*{chr(97 + n)}.*"} for n in range(26)],
    },
    "many patterns of names": {
        "type": "object",
        "patternProperties": {f"^p{n}_.*$": {"type": "null"} for n in range(1500)},
    },
    "steps of a million": {"type": "integer", "multipleOf": 1_000_003},
    "many steps": {
        "type": "array",
        "prefixItems": [
            {"type": "integer", "multipleOf": 10_007 + n} for n in range(99)
        ],
    },
    "repeated repeats": {"type": "string", "pattern": "^(a{1000}){1000}$"},
    "what is behind": {"type": "string", "pattern": ".*a.{2000}"},
    "many properties": {
        "type": "object",
        "properties": {f"p{n}": True for n in range(4000)},
    },
    "products": {
        "allOf": [
            {"anyOf": [{"properties": {f"p{n}": {"const": m}}} for m in range(3)]}
            for n in range(20)
        ]
    },
    "depth": {"$defs": {**TREE, "d20": {"const": "x" * 1000}}, "$ref": "#/$defs/d0"},
    "loops": {"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}]},
}
AMBIGUOUS = {
    "doubles": 'start: s\ns: s s | "a" | ',
    "stars": 'start: (a*)*\na: "a"* b*\nb: "a" | "b"',
    "repeats": 'start: a{1000}\na: b{1000}\nb: c{1000}\nc: "x"{0,1000}',
    "lengths": "start: s{300}\ns: a | b | c | d\n"
    'a: "x" | "x" "x" | "x" "x" "x"\nb: a | "x" "x"\nc: a b | b\nd: c | a c',
    "terminals": "start: A0\n"
    + "".join(f"A{n}: A{n + 1} A{n + 1}\n" for n in range(25))
    + 'A25: "ab"\n',
}
SLOW_MACHINE = 10
"""How much longer a processor may take than those for which the bounds were chosen."""
LOOKS_EACH = 10
"""Tokens from one look at what has to follow to the next: a look may use up its own bound."""
GRAMMARS = {
    **{name: ("json_schema", json.dumps(schema)) for name, schema in HOSTILE.items()},
    **{name: ("lark", source) for name, source in AMBIGUOUS.items()},
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", GRAMMARS)
def test_no_grammar_takes_long_to_compile_or_for_a_token(walker, name):
    began_at = time.thread_time()
    try:
        constraint = walker.compile(*GRAMMARS[name])
    except RefusedError:
        return
    finally:
        assert time.thread_time() - began_at < SLOW_MACHINE * GRAMMAR_COMPILE_S
    chance = np.random.default_rng(0)
    slowest = 0.0
    for number in range(100):
        began_at = time.thread_time()
        try:
            allowed = walker.allowed(constraint)
            allowed[[*walker.model.end_tokens]] = False
            if constraint.is_stopped or not allowed.any():
                break
            constraint.accept([int(chance.choice(np.flatnonzero(allowed)))])
            if number % LOOKS_EACH == 0:
                constraint.lookahead()
        except ConstraintError:
            break  # its answer has failed
        finally:
            slowest = max(slowest, time.thread_time() - began_at)
    assert slowest < SLOW_MACHINE * GRAMMAR_STEP_S
