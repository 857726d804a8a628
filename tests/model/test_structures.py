import json
import re
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs
import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import Connection, DaemonProcess, llamacpp
from tests.model.asking import ENDS_SOON, V2, ask, asked, favoured, told, tool

pytestmark = [pytest.mark.model, pytest.mark.slow]

N_CTX: Final = 384
PERSON: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
DATE: Final = r"[0-9]{4}-[01][0-9]-[0-3][0-9]"
GBNF: Final = 'root ::= word ("-" word){2}\nword ::= "so" | "mi" | "fä"'
LARK: Final = 'start: pair ("; " pair)~2\npair: KEY "=" /[0-9]{1,3}/\nKEY: /[a-z]{2,5}/'
LOOK: Final = tool("look", {"properties": {"days": {"enum": [1, 2]}}})
TELL: Final = tool("tell", {"properties": {}})


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    backend = llamacpp("embedded:chat", n_ctx=N_CTX)
    with daemons() as make:
        yield make({"backend": [backend], "admission": {"max_active": 3}}).start()


@pytest.fixture
def client(daemon) -> Iterator[Connection]:
    with daemon.connect(V2) as connection:
        yield connection


def json_schema(schema: object) -> dict[str, object]:
    return {"type": "json_schema", "schema": schema}


def satisfies(form, text) -> bool:
    match form["type"]:
        case "json_schema":
            return jsonschema_rs.is_valid(form["schema"], json.loads(text))
        case "regex":
            return bool(re.fullmatch(form["pattern"], text))
        case "gbnf":
            return bool(re.fullmatch("(so|mi|fä)(-(so|mi|fä)){2}", text))
        case _:
            pair = "[a-z]{2,5}=[0-9]{1,3}"
            return bool(re.fullmatch(f"{pair}(; {pair}){{2}}", text))


FORMS: Final = [
    json_schema(PERSON),
    {"type": "regex", "pattern": DATE},
    {"type": "gbnf", "grammar": GBNF},
    {"type": "lark", "grammar": LARK},
]


# --- whole structures -------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0, 1.5])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["type"])
def test_an_answer_is_what_its_format_says(daemon, form, temperature):
    [only], done = ask(daemon, response_format=form, temperature=temperature)
    assert satisfies(form, only["text"])
    assert (done["stop_reason"], done["structure_complete"]) == ("end_turn", True)


def test_a_grammar_of_v1_holds_an_answer(daemon):
    *tokens, done = daemon.ask(grammar=GBNF, temperature=1.5)
    assert satisfies(FORMS[2], done["content"])
    assert "".join(token["content"] for token in tokens) == done["content"]
    assert (done["stop_reason"], done["structure_complete"]) == ("end", True)


def test_an_answer_that_is_held_to_nothing_is_told_without_a_word_of_structure(daemon):
    for fields in ({}, {"tools": [TELL]}):
        *_, done = ask(daemon, max_tokens=2, **fields)
        assert "structure_complete" not in done


@pytest.mark.parametrize(
    "fields",
    [{"response_format": FORMS[0]}, {"tools": [TELL], "tool_choice": "required"}],
    ids=["format", "call"],
)
def test_what_is_counted_alone_is_told_without_a_word_of_structure(daemon, fields):
    for limits in ({"max_tokens": 0}, {"prefill_only": True}):
        said, done = ask(daemon, **fields, **limits)
        assert said == []
        assert "structure_complete" not in done
    *_, done = daemon.ask(grammar=GBNF, max_tokens=0)
    assert "structure_complete" not in done


def test_each_token_of_a_structure_has_its_log_probability(client):
    request = asked(response_format=json_schema(PERSON), logprobs=2)
    *frames, done = client.ask(request)
    probable = [each for frame in frames for each in frame["logprobs"]]
    text = "".join(frame["block"]["delta"] for frame in frames)
    assert b"".join(bytes(each["bytes"]) for each in probable).decode() == text
    assert len(probable) == done["usage"]["output_tokens"]
    assert {len(each["top_logprobs"]) for each in probable} == {2}
    assert all(each["logprob"] <= 0 for each in probable)
    assert satisfies(FORMS[0], text)


# --- structures that end early ----------------------------------------------------------


def test_a_structure_that_has_not_enough_tokens_is_told_to_be_open(daemon):
    form = json_schema(PERSON)
    [only], done = ask(daemon, response_format=form, max_tokens=4)
    assert only["text"].startswith('{"name')
    assert (done["stop_reason"], done["structure_complete"]) == ("max_tokens", False)


def test_a_structure_that_a_stop_string_cuts_is_told_to_be_open(daemon):
    form = json_schema(PERSON)
    [only], done = ask(daemon, response_format=form, stop=['"age'])
    assert only["text"].startswith('{"name": "')
    assert (done["stop_reason"], done["stop_sequence"]) == ("stop_sequence", '"age')
    assert done["structure_complete"] is False


def test_a_structure_that_is_cancelled_is_told_to_be_open(client):
    form = {"type": "regex", "pattern": "[a-z ]{3000}"}
    client.send(asked(id="r", response_format=form, max_tokens=300))
    assert client.frame()["block"]["type"] == "text"
    client.send({"type": "cancel", "id": "r"})
    done = client.frames()[-1]
    assert (done["stop_reason"], done["structure_complete"]) == ("cancelled", False)
    again = client.ask(asked(response_format=FORMS[1]))
    assert again[-1]["structure_complete"] is True


# --- what cannot be held to -------------------------------------------------------------


def tool_with(schema: object) -> dict[str, Any]:
    tools = [TELL, tool("look", {"properties": {"a": schema}})]
    return {"tools": tools, "tool_choice": "required"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {
                "response_format": json_schema(
                    {"properties": {"a": {"items": {"not": {}}}}}
                )
            },
            "response_format.schema/properties/a/items: not supported",
        ),
        (
            {"response_format": {"type": "regex", "pattern": "a(b"}},
            "response_format.pattern: ",
        ),
        (
            {"response_format": {"type": "gbnf", "grammar": "root ::= twig"}},
            "response_format.grammar: not valid GBNF: there is no rule named twig",
        ),
        (
            {"response_format": {"type": "lark", "grammar": "start: twig"}},
            "response_format.grammar: ",
        ),
        (
            tool_with({"type": "string", "pattern": "a(?=b)"}),
            "tools[1].input_schema: ",
        ),
    ],
    ids=["schema", "pattern", "gbnf", "lark", "tool"],
)
def test_what_does_not_compile_is_refused_by_its_place_and_the_connection_kept(
    client, fields, message
):
    [refusal] = client.ask(asked(id="x", **fields))
    assert (refusal["id"], refusal["code"]) == ("x", "invalid_request")
    assert refusal["message"].startswith(f"invalid request: {message}")
    done = client.ask(asked(response_format=FORMS[1]))[-1]
    assert done["structure_complete"] is True


def test_a_prompt_with_too_many_tools_is_refused_before_anything_is_told(client):
    tools = [tool(f"tool_{number}", PERSON) for number in range(12)]
    [refusal] = client.ask(asked(id="x", tools=tools, tool_choice="required"))
    assert (refusal["id"], refusal["code"]) == ("x", "invalid_request")
    assert refusal["n_ctx"] == N_CTX
    assert refusal["tokens_over"] == refusal["prompt_tokens"] + 1 - N_CTX > 0
    done = client.ask(asked(response_format=FORMS[1]))[-1]
    assert done["structure_complete"] is True


# --- structures and calls ---------------------------------------------------------------


def test_a_named_tool_is_called_whatever_the_text_would_have_to_be(daemon):
    blocks, done = ask(
        daemon,
        tools=[LOOK, TELL],
        tool_choice={"name": "tell"},
        response_format=FORMS[1],
        logit_bias=ENDS_SOON,
    )
    assert blocks == [("tell", {})]
    assert (done["stop_reason"], done["structure_complete"]) == ("tool_use", True)


def test_who_may_call_writes_calls_or_the_structure(daemon):
    fields = {"tools": [TELL], "response_format": json_schema(PERSON)}
    blocks, done = ask(daemon, **fields, logit_bias=ENDS_SOON)
    assert blocks == [("tell", {})]
    assert done["structure_complete"] is True
    [only], done = ask(daemon, **fields, logit_bias=favoured("{"))
    assert satisfies(FORMS[0], only["text"])
    assert (done["stop_reason"], done["structure_complete"]) == ("end_turn", True)


def test_who_may_not_call_writes_the_structure(daemon):
    fields = {"tools": [TELL], "response_format": json_schema(PERSON)}
    [only], done = ask(daemon, **fields, tool_choice="none", logit_bias=favoured("<"))
    assert satisfies(FORMS[0], only["text"])
    assert done["stop_reason"] == "end_turn"


# --- several at once --------------------------------------------------------------------


def test_answers_at_once_are_each_held_to_their_own_and_one_to_nothing(daemon):
    requests = [
        asked(response_format=FORMS[0]),
        asked(response_format=FORMS[3], temperature=1.5),
        asked(max_tokens=40, min_tokens=40),
    ]
    connections = [daemon.connect(V2) for _ in requests]
    for connection, request in zip(connections, requests, strict=True):
        connection.send(request)
    answers = [connection.frames() for connection in connections]
    for form, frames in zip((FORMS[0], FORMS[3]), answers[:2], strict=True):
        [only] = told(frames)
        assert satisfies(form, only["text"])
        assert frames[-1]["structure_complete"] is True
    plain = answers[2][-1]
    assert plain["usage"]["output_tokens"] == 40
    assert "structure_complete" not in plain
