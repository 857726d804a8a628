"""Every family with a daemon of its own, from one end to the other.

The model has the embedded one's tokens; it is of one family, and for the others it is only
a set of tokens, in which their markers are plain text. It has one layer and no preference:
what it writes follows from biases and penalties alone.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest

from inferd.dialects.lark import LarkBuilder
from inferd.dialects.registry import DIALECTS
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, Frame, llamacpp
from tests.model.asking import ENDS_SOON, V2, ask, asked, favoured, told, tool
from tests.model.shortened import write_shortened
from tests.model.spellings import FAMILIES
from tests.unit.dialects.cases import Case, cases_of

pytestmark = [pytest.mark.model, pytest.mark.slow]

LOOK: Final = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 9},
        "days": {"enum": [1, 2]},
    },
    "required": ["city"],
}
TELL: Final = {
    "type": "object",
    "properties": {"zone": {"enum": ["utc", "ö"]}},
    "required": ["zone"],
}
TOOLS: Final[dict[str, dict[str, Any]]] = {"look": LOOK, "tell": TELL}


@pytest.fixture(scope="module", params=DIALECTS)
def family(request) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def indifferent_chat(embedded_chat, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("indifferent") / "chat.gguf"
    return write_shortened(embedded_chat, path, is_indifferent=True)


@pytest.fixture(scope="module")
def daemon(family, indifferent_chat) -> Iterator[DaemonProcess]:
    backend = llamacpp(indifferent_chat, n_ctx=1024, chat_template=family)
    with daemons() as make:
        yield make({"backend": [backend], "admission": {"max_active": 1}}).start()


# --- calls that are forced, and what comes back -----------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("choice", ["required", {"name": "tell"}], ids=str)
def test_a_forced_call_is_a_call_that_the_tool_allows(daemon, choice):
    [(name, arguments)], done = ask(
        daemon,
        tools=[tool(*each) for each in TOOLS.items()],
        tool_choice=choice,
        logit_bias=ENDS_SOON,
    )
    assert name in (TOOLS if choice == "required" else [choice["name"]])
    jsonschema_rs.validate(TOOLS[name], arguments)
    assert arguments.keys() <= TOOLS[name]["properties"].keys()
    assert (done["stop_reason"], done["structure_complete"]) == ("tool_use", True)
    assert "warnings" not in done


ASKED: Final = {"role": "user", "content": [{"type": "text", "text": "Hi."}]}
CALLED: Final = {
    "role": "assistant",
    "content": [
        {
            "type": "tool_use",
            "tool_call_id": "tc-0",
            "name": "look",
            "input": {"city": "Zürich 😀"},
        }
    ],
}
ANSWERED: Final = {
    "role": "user",
    "content": [
        {
            "type": "tool_result",
            "tool_call_id": "tc-0",
            "content": [{"type": "text", "text": "12 °C → “kühl”"}],
        }
    ],
}


def test_a_call_and_its_result_go_back_and_are_answered_with_text(daemon):
    n_tokens = []
    for messages in ([ASKED], [ASKED, CALLED, ANSWERED]):
        blocks, done = ask(
            daemon,
            messages=messages,
            tools=[tool("look", LOOK)],
            tool_choice="none",
            max_tokens=3,
            logit_bias=favoured("!"),
        )
        assert blocks == [{"text": "!!!"}]
        assert done["stop_reason"] == "max_tokens"
        n_tokens.append(done["usage"]["input_tokens"])
    assert n_tokens[1] - n_tokens[0] > 15


# --- structures that spell the family's transcripts --------------------------------------

SHAPES: Final = {
    "a thought, then text": "thinking text",
    "text beside a call": "text call",
    "two calls": "call call",
    "no call": "malformed",
}


def shape_of(case: Case) -> str:
    """Say what there is in an answer, in order, and then if anything is malformed."""
    kinds = [
        "call" if event.tool_use else "text" if event.text else "thinking"
        for event in case.events
    ]
    return " ".join([*kinds, *["malformed" for _ in case.malformed]])


def cases_to_tell_apart(family: str) -> dict[str, Case]:
    """Give the first transcript of each shape that any prompt may come before."""
    usable = [
        case
        for case in cases_of(family)
        if not (case.answer_hex or case.was_cut or case.opens_thought)
        if not DIALECTS[family].open_thought(case.prompt or "")
    ]
    return {
        name: case
        for name, shape in SHAPES.items()
        for case in reversed(usable)
        if shape in shape_of(case)
    }


@pytest.mark.parametrize("name", DIALECTS)
def test_transcripts_show_all_that_a_family_has(name):
    lacking = set() if FAMILIES[name].thought else {"a thought, then text"}
    assert SHAPES.keys() - cases_to_tell_apart(name).keys() == lacking


def spelling(case: Case) -> Frame:
    """Hold the answer to that of a case, byte for byte."""
    grammar = LarkBuilder().source(LarkBuilder().text(case.answer))
    return {
        "messages": [CALLED],
        "response_format": {"type": "lark", "grammar": grammar},
    }


def headers_of(family: str) -> set[str]:
    """Give what a family writes before text, which the parser takes out."""
    regions = [each for each in DIALECTS[family].regions if each.holds == "text"]
    return {"", *(begin for each in regions for begin in each.begins)}


@pytest.mark.long
def test_what_a_structure_governs_is_text_whatever_it_spells(daemon, family):
    for name, case in cases_to_tell_apart(family).items():
        ([block], done), whole = (
            ask(daemon, **spelling(case), stream=stream) for stream in (True, False)
        )
        assert case.answer.removesuffix(block["text"]) in headers_of(family), name
        assert whole[0] == [block]
        assert "warnings" not in done
        assert done["structure_complete"] is True
        assert done["usage"]["output_tokens"] > 1


# --- thoughts that are wanted -----------------------------------------------------------

NUMBER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
}
OPENS: Final = {
    "<think>\n": favoured("<", "think"),
    "[THINK]": favoured("["),
    "<|channel>thought\n": favoured("<"),
    "<|channel|>analysis<|message|>": favoured("<", "analysis"),
}
"""By what stands before a thought: what opens one wherever it may, and closes none."""
CLOSES: Final[Frame] = {
    "logit_bias": favoured(">")
    | favoured("think", bias=90)
    | favoured("</", bias=80)
    | favoured("th", bias=70)
    | favoured("ink", bias=60)
    | favoured("<", bias=20),
    "repeat_penalty": 2,
}
"""What opens a thought and closes it: each score is halved once its token was written. So the
tokens of an opening come first where one may, then those of an end in two other tokens, and
the bracket, which is ahead of all that were written."""
CLOSING: Final = {"qwen", "qwen3-coder", "deepseek"}
"""Families whose thoughts end so."""
WITHOUT: Final = {name for name in FAMILIES if not FAMILIES[name].thought} | {"generic"}
"""Families without thoughts; the generic one has those of the model's own template."""


def thinking(**fields: Any) -> Frame:
    form = {"type": "json_schema", "schema": NUMBER}
    return asked(thinking=True, response_format=form, **fields)


def test_a_thought_that_is_wanted_comes_before_the_structure(daemon, family):
    thought = FAMILIES[family].thought
    bias = OPENS[thought[0]] if thought else {}
    with daemon.connect(V2) as connection:
        *frames, last = connection.ask(thinking(logit_bias=bias, max_tokens=24))
    if family in WITHOUT:
        assert (frames, last["code"]) == ([], "invalid_request")
        assert "thinking" in last["message"]
    else:
        assert [[*each] for each in told(frames)] == [["thinking"]]
        ending = (last["stop_reason"], last["structure_complete"])
        assert ending == ("max_tokens", False)
    if family in CLOSING:
        [*thoughts, text], done = ask(daemon, **thinking(**CLOSES))
        assert [[*each] for each in thoughts] in ([], [["thinking"]])
        jsonschema_rs.validate(NUMBER, json.loads(text["text"]))
        assert done["structure_complete"] is True
        assert done["usage"]["output_tokens"] > len(text["text"]) + 2
