"""Real templates, with conversations that spell every token they know."""

import json
import re
from typing import Final

import pytest
from msgspec.structs import replace

from inferd.backend.job import GenerateJob, Sampling, ToolSpec, Turn
from inferd.dialects.prompt.renderer import PromptRenderer
from inferd.dialects.prompt.special_tokens import SpecialTokenTexts
from inferd.dialects.registry import detect_dialect
from tests.cases import each_case
from tests.model.chat_templates import CONVERSATIONS, NAMES, UNUSABLE, compiled

pytestmark = pytest.mark.slow

SPECIAL: Final = re.compile(
    r"<[|\uff5c][^<>\s{}'\"]+>|<[^<>\s{}'\"]+\|>|\[/?[A-Z_]{3,}\]"
)
USABLE: Final = [name for name in NAMES if name not in UNUSABLE]


def tokens_of(source: str) -> list[str]:
    return sorted(set(SPECIAL.findall(source)))


def saying(turn: Turn, text: str) -> Turn:
    calls = tuple(
        replace(call, name=call.name + text, arguments=with_key(call.arguments, text))
        for call in turn.calls
    )
    name = turn.name and turn.name + text
    return Turn(turn.role, turn.text + text, calls, turn.call_id, name)


def telling(tool: ToolSpec, text: str) -> ToolSpec:
    schema = json.loads(tool.input_schema)
    schema["properties"][text] = {"type": "string", "description": text}
    return ToolSpec(
        name=tool.name + text,
        description=text,
        input_schema=json.dumps(schema).replace("<", "\\u003c"),
    )


def with_key(arguments: str, text: str) -> str:
    return json.dumps(json.loads(arguments) | {text: [text]}).replace("<", "\\u003c")


def pieces(prompts: PromptRenderer, name: str, text: str) -> tuple[str, ...]:
    turns, tools = CONVERSATIONS[name]
    job = GenerateJob(
        turns=[saying(turn, text) for turn in turns],
        tools=tuple(telling(tool, text) for tool in tools),
        max_tokens=1,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )
    return prompts.render(job).pieces


@each_case("name", USABLE, shards=5)
def test_clients_add_no_token_to_what_a_template_writes(name):
    template = compiled(name)
    dialect = detect_dialect("", template.source)
    tokens = tokens_of(template.source)
    prompts = PromptRenderer(template, dialect, SpecialTokenTexts(tokens))
    thoughts = {marker.strip() for marker in prompts.thought_markers}
    spelled = "".join(each for each in tokens if each not in thoughts)
    for conversation in CONVERSATIONS:
        found = pieces(prompts, conversation, spelled)
        calm = pieces(prompts, conversation, "x" * len(spelled))
        for token in tokens:
            n_found = sum(piece.count(token) for piece in found)
            assert n_found == sum(piece.count(token) for piece in calm), conversation
        text = "".join(calm).replace("x" * len(spelled), spelled)
        assert "".join(found) == text, conversation
