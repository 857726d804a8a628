"""Chat templates of real models, and conversations to render with them.

The templates come with llama.cpp's sources; ``make setup`` keeps them beside its library.
"""

import datetime as dt
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.prompt.template import ChatTemplate

SYSTEM = Turn("system", "You are terse.")
LATER_SYSTEM = Turn("system", "Be kind.")
QUESTION = Turn("user", "Weather in Zürich?")
ANSWER = Turn("assistant", "It is 12 °C.")
NEXT = Turn("user", "And now?")
WEATHER = ToolSpec(
    name="get_weather",
    description="Get the weather.",
    input_schema='{"type": "object", "properties": {"city": {"type": "string", '
    '"description": "City name"}, "days": {"type": "integer"}}, "required": ["city"]}',
)
CALLS = tuple(
    PastCall(
        id=f"tc-{n}",
        name="get_weather",
        arguments=json.dumps({"city": city, "days": 2 - n}),
    )
    for n, city in enumerate(["Zürich", "Bern"])
)
RESULTS = [
    Turn("tool", text, call_id=call.id, name=call.name)
    for call, text in zip(CALLS, ["12 °C", "9 °C"], strict=True)
]
CALLING = [SYSTEM, QUESTION, Turn("assistant", "", calls=CALLS[:1]), RESULTS[0]]
CALLING_AGAIN = [ANSWER, NEXT, Turn("assistant", "", calls=CALLS[1:]), RESULTS[1]]
WITH_WORDS = Turn("assistant", "Let me look.", calls=CALLS[:1])

CONVERSATIONS: Final = {
    "question": ([QUESTION], []),
    "answer": ([SYSTEM, QUESTION, ANSWER, NEXT], []),
    "system turns": ([SYSTEM, QUESTION, ANSWER, LATER_SYSTEM, NEXT], []),
    "run": ([SYSTEM, QUESTION, NEXT], []),
    "tools": ([SYSTEM, QUESTION], [WEATHER]),
    "tools alone": ([QUESTION], [WEATHER]),
    "call": (CALLING, [WEATHER]),
    "call without tools": (CALLING, []),
    "words and call": (
        [SYSTEM, QUESTION, WITH_WORDS, RESULTS[0], ANSWER, NEXT],
        [WEATHER],
    ),
    "two calls": (
        [SYSTEM, QUESTION, Turn("assistant", "", calls=CALLS), *RESULTS, ANSWER, NEXT],
        [WEATHER],
    ),
    "two rounds": ([*CALLING, *CALLING_AGAIN], [WEATHER]),
}
TODAY: Final = dt.datetime(2024, 7, 26, 12, tzinfo=dt.UTC)
"""What Llama's templates take for today where nobody tells them."""
TOKENS: Final = {"bos_token": "", "eos_token": "<|eos|>"}


def templates() -> Path:
    package = find_spec("llama_cpp")
    assert package is not None
    assert package.submodule_search_locations is not None
    return Path(package.submodule_search_locations[0]) / "templates"


NAMES: Final = sorted(path.stem for path in templates().glob("*.jinja"))


UNUSABLE: Final = {
    "CohereForAI-c4ai-command-r-plus-tool_use",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "fireworks-ai-llama-3-firefunction-v2",
}
"""Templates that want what nobody gives, or tools always."""


def source_of(name: str) -> str:
    return (templates() / f"{name}.jinja").read_text()


def compiled(name: str, tokens=TOKENS) -> ChatTemplate:
    return ChatTemplate(source_of(name), tokens, lambda: TODAY)
