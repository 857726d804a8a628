import json
import re
from collections.abc import Iterator, Mapping, Set as AbstractSet
from typing import Final

import minijinja
import pytest

from inferd.backend.job import GenerateJob, Sampling, ToolSpec, Turn
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.dialects.dialect import Dialect
from inferd.dialects.families.chatml import CHATML
from inferd.dialects.families.generic import GENERIC
from inferd.dialects.prompt.renderer import PromptRenderer
from inferd.dialects.prompt.template import ChatTemplate, TemplateError
from inferd.dialects.prompt.template_caps import probe_template
from inferd.dialects.registry import DIALECTS, detect_dialect
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.library.binding import load_library
from inferd.worker.llama.model.weights import LlamaModel
from tests.cases import each_case
from tests.model.chat_templates import (
    CONVERSATIONS,
    NAMES,
    TODAY,
    TOKENS,
    UNUSABLE,
    compiled,
    source_of,
)

pytestmark = pytest.mark.slow


def test_there_are_templates():
    assert len(NAMES) > 60


# --- another engine -------------------------------------------------------------------

GENERATION: Final = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")
"""A statement that the other engine does not know; it says nothing."""
OTHERWISE: Final = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "goes through tools that are none",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "goes through tools that are none",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "goes through tools that are none",
    "llama-cpp-deepseek-r1": "writes a generator as JSON, which Python refuses",
    "meetkai-functionary-medium-v3.1": "adds to what it called safe, which is escaped",
}
"""Templates that the other engine understands otherwise."""


class RefusalError(Exception):
    pass


def refuse(words):
    raise RefusalError(words)


def other_json(
    value, *, ensure_ascii=False, indent=None, separators=None, sort_keys=False
):
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def other_engine() -> minijinja.Environment:
    return minijinja.Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        auto_escape_callback=lambda _name: None,
        filters={"tojson": other_json},
        tests={"iterable": lambda value: hasattr(value, "__iter__")},
        globals={
            "raise_exception": refuse,
            "strftime_now": TODAY.strftime,
        },
    )


def message(turn: Turn) -> dict[str, object]:
    made: dict[str, object] = {"role": turn.role, "content": turn.text}
    if turn.calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.loads(call.arguments),
                },
            }
            for call in turn.calls
        ]
    if turn.role == "tool":
        made |= {"tool_call_id": turn.call_id, "name": turn.name}
    return made


def function(tool: ToolSpec) -> dict[str, object]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": json.loads(tool.input_schema),
        },
    }


def others_prompt(engine, turns, tools, *, thinks):
    try:
        return engine.render_template(
            "chat",
            messages=[message(each) for each in turns],
            tools=[function(each) for each in tools] or None,
            documents=None,
            add_generation_prompt=True,
            enable_thinking=thinks,
            thinking=thinks,
            **TOKENS,
        )
    except (minijinja.TemplateError, RefusalError):
        return None


def our_prompt(template, turns, tools, *, thinks):
    try:
        return template.render(turns, tools, thinks=thinks)
    except TemplateError:
        return None


def differences(name: str) -> Iterator[str]:
    template = compiled(name)
    engine = other_engine()
    engine.add_template("chat", GENERATION.sub("", template.source))
    for conversation, (turns, tools) in CONVERSATIONS.items():
        for thinks in (False, True):
            ours = our_prompt(template, turns, tools, thinks=thinks)
            if ours != others_prompt(engine, turns, tools, thinks=thinks):
                yield conversation


@pytest.mark.long
@each_case("name", NAMES, shards=5)
def test_another_engine_writes_the_same_prompts_or_refuses_the_same(name):
    assert bool([*differences(name)]) is (name in OTHERWISE)


# --- what a template can say ----------------------------------------------------------


@pytest.mark.long
def test_all_but_a_few_can_be_used():
    assert {name for name in NAMES if not probe_template(compiled(name))} == UNUSABLE


# --- our dialects ---------------------------------------------------------------------

ENDS: Final = {
    "deepseek": "<｜end▁of▁sentence｜>",  # noqa: RUF001  # theirs
    "granite": "<|end_of_text|>",
    "mistral": "</s>",
}
DATE: Final = re.compile(r"Current date: .*\n")
"""Of harmony; our dialect leaves it out."""
ALL: Final = frozenset(CONVERSATIONS)
WITH_TOOLS: Final = frozenset(name for name in ALL if CONVERSATIONS[name][1])
WITH_CALLS: Final = frozenset(name for name in ALL if "call" in name or "two" in name)
KNOWN: Final[Mapping[str, tuple[AbstractSet[str], str]]] = {
    "Bielik-11B-v3.0-Instruct": (ALL, "tells tools in Polish"),
    "HuggingFaceTB-SmolLM3-3B": (ALL, "begins with metadata"),
    "MiMo-VL": (ALL, "is Qwen 2.5's, with its own system text"),
    "Mistral-Small-3.2-24B-Instruct-2506": (
        WITH_CALLS | {"question", "system turns", "tools alone"},
        "is of version 11, and has a system text",
    ),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (ALL, "has thoughts in all turns"),
    "Qwen-QwQ-32B": (ALL, "is llama.cpp's, and closes thoughts without an empty line"),
    "Qwen-Qwen2.5-7B-Instruct": (ALL, "knows no thoughts, so leaves none empty"),
    "Qwen3-Coder": (WITH_TOOLS, "is llama.cpp's, with other words for how to call"),
    "Qwen3.5-4B": (ALL, "has thoughts, and tells tools as JSON"),
    "StepFun3.5-Flash": (ALL, "has thoughts, and tells tools as JSON"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": (ALL, "is of R1"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": (ALL, "is of R1"),
    "deepseek-ai-DeepSeek-V3.1": (
        ALL,
        "is llama.cpp's, and opens thoughts to close them",
    ),
    "google-gemma-4-31B-it": (
        {"call", "call without tools", "words and call", "two rounds"},
        "has words after the result, and opens no thought there",
    ),
    "google-gemma-4-31B-it-interleaved": (WITH_CALLS, "is llama.cpp's"),
    "ibm-granite-granite-3.3-2B-Instruct": (
        {"question", "tools", "tools alone"},
        "has a system text, and does not tell how to call beside another",
    ),
    "ibm-granite-granite-4.0": ({"question"}, "has a system text"),
    "llama-cpp-deepseek-r1": (ALL, "is llama.cpp's, and ends turns of the user's"),
    "mistralai-Ministral-3-14B-Reasoning-2512": (
        ALL,
        "tells how to think where nothing else is told, wanted or not",
    ),
    "mistralai-Mistral-Nemo-Instruct-2407": (
        ALL - {"question", "tools alone"},
        "is of version 3",
    ),
    "openai-gpt-oss-120b": (
        {"system turns", "words and call"},
        "knows one system turn, and leaves out words beside calls",
    ),
    "unsloth-mistral-Devstral-Small-2507": (
        {"question", "run", "tools alone"},
        "has a system text, and does not join turns",
    ),
}
"""Conversations that a template writes otherwise than the dialect, and why."""


def sayable(template: ChatTemplate) -> AbstractSet[str]:
    able = probe_template(template)
    assert able is not None
    return {name for name, asked in CONVERSATIONS.items() if able.supports(*asked)}


def differing(template: ChatTemplate, dialect: Dialect) -> AbstractSet[str]:
    prompts, able = PromptRenderer(template, dialect), probe_template(template)
    assert able is not None
    return {
        name
        for name in sayable(template)
        for thinks in {False, prompts.features.thinks}
        if not thinks or able.can_toggle_thinking(CONVERSATIONS[name][0])
        if DATE.sub("", prompts.render(job(*CONVERSATIONS[name], thinks=thinks)).text)
        != dialect.render(*CONVERSATIONS[name], thinks)
    }


def job(turns, tools, *, thinks) -> GenerateJob:
    return GenerateJob(
        turns=turns,
        tools=tuple(tools),
        thinks=thinks,
        max_tokens=1,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )


FAMILIES: Final = {
    name: dialect
    for name in NAMES
    if name not in UNUSABLE
    and (dialect := detect_dialect("", source_of(name))) is not GENERIC
}


def test_there_is_a_template_of_each_family_but_the_plainest():
    families = {dialect.name for dialect in FAMILIES.values()}
    assert DIALECTS.keys() - families == {"chatml", "generic"}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_dialect_writes_what_templates_of_its_family_write(name):
    dialect = FAMILIES[name]
    template = compiled(name, {**TOKENS, "eos_token": ENDS.get(dialect.name, "")})
    known, _reason = KNOWN.get(name, (set(), ""))
    assert differing(template, dialect) == known & sayable(template)


@pytest.mark.model
def test_the_plainest_writes_what_the_template_of_the_embedded_model_writes(
    embedded_chat,
):
    load_library()
    settings = LlamaCppSettings(name="chat", model=str(embedded_chat))
    source = LlamaModel(ModelFile(embedded_chat), settings, lambda: None).chat_template
    assert source is not None
    template = ChatTemplate(source, TOKENS, lambda: TODAY)
    assert sayable(template) == {"question", "answer", "system turns", "run"}
    assert differing(template, CHATML) == {"question"}  # it has a system text
