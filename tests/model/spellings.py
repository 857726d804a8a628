"""How each family spells thoughts and calls, written down apart from the dialects."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple


class Spoken(NamedTuple):
    """A call before it is spelled, or as it was read."""

    name: str
    arguments: dict[str, Any]


Spell = Callable[[Sequence[Spoken]], str]


@dataclass(frozen=True, kw_only=True)
class Family:
    """What a family writes.

    Args:
        spells: its ways to write calls.
        n_calls: that one answer may hold.
        thought: what stands before a thought, and after it.
        goes_on: what comes between a thought and a call.
        before_text: what text may begin with.
    """

    spells: Mapping[str, Spell]
    n_calls: int = 9
    thought: tuple[str, str] | None = None
    goes_on: str = ""
    before_text: tuple[str, ...] = ("",)


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _object(call: Spoken, key: str = "arguments") -> str:
    return to_json({"name": call.name, key: call.arguments})


def _hermes(calls: Sequence[Spoken]) -> str:
    return "\n".join(f"<tool_call>\n{_object(each)}\n</tool_call>" for each in calls)


def _listed(calls: Sequence[Spoken]) -> str:
    return f"[{', '.join(map(_object, calls))}]"


def _tagged(calls: Sequence[Spoken]) -> str:
    return "\n".join(
        f"<tool_call>\n<function={call.name}>\n"
        + "".join(
            f"<parameter={name}>\n{_bare(value)}\n</parameter>\n"
            for name, value in call.arguments.items()
        )
        + "</function>\n</tool_call>"
        for call in calls
    )


def _bare(value: object) -> str:
    return value if isinstance(value, str) else to_json(value)


def _gemma(calls: Sequence[Spoken]) -> str:
    return "".join(
        f"<|tool_call>call:{call.name}{_gemma_value(call.arguments)}<tool_call|>"
        for call in calls
    )


def _gemma_value(value: object) -> str:
    match value:
        case str():
            return f'<|"|>{value}<|"|>'
        case list():
            return f"[{','.join(map(_gemma_value, value))}]"
        case dict():
            members = [f"{key}:{_gemma_value(value[key])}" for key in sorted(value)]
            return f"{{{','.join(members)}}}"
        case _:
            return to_json(value)


def _llama(calls: Sequence[Spoken]) -> str:
    return "; ".join(_object(each, "parameters") for each in calls)


def _mistral(calls: Sequence[Spoken], call_id: str = "") -> str:
    return "".join(
        f"[TOOL_CALLS]{call.name}{call_id}[ARGS]{to_json(call.arguments)}"
        for call in calls
    )


# ruff: noqa: RUF001  # DeepSeek's bars are no ASCII
def _deepseek(calls: Sequence[Spoken]) -> str:
    each = "".join(
        f"<｜tool▁call▁begin｜>{call.name}<｜tool▁sep｜>{to_json(call.arguments)}"
        "<｜tool▁call▁end｜>"
        for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{each}<｜tool▁calls▁end｜>"


def _fenced(calls: Sequence[Spoken]) -> str:
    each = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n"
        f"```json\n{to_json(call.arguments)}\n```<｜tool▁call▁end｜>"
        for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{each}<｜tool▁calls▁end｜>"


def _harmony(calls: Sequence[Spoken]) -> str:
    [(name, arguments)] = calls
    header = f"<|channel|>commentary to=functions.{name} <|constrain|>json"
    return f"{header}<|message|>{to_json(arguments)}"


def _harmony_first(calls: Sequence[Spoken]) -> str:
    [(name, arguments)] = calls
    header = f" to=functions.{name}<|channel|>commentary json"
    return f"{header}<|message|>{to_json(arguments)}"


THINK: Final = ("<think>\n", "\n</think>\n\n")
_PLAIN: Final = Family(spells={"tags": _hermes})
_THINKING: Final = Family(spells={"tags": _hermes}, thought=THINK)

FAMILIES: Final[Mapping[str, Family]] = {
    "chatml": _PLAIN,
    "gemma3": _PLAIN,
    "qwen": _THINKING,
    "generic": _THINKING,
    "qwen3-coder": Family(spells={"tags": _tagged}, thought=THINK),
    "gemma4": Family(
        spells={"tokens": _gemma},
        thought=("<|channel>thought\n", "\n<channel|>"),
    ),
    "llama3": Family(
        spells={
            "plain": _llama,
            "after a tag": lambda calls: f"<|python_tag|>{_llama(calls)}",
        },
    ),
    "mistral": Family(
        spells={
            "names": _mistral,
            "names and ids": lambda calls: _mistral(calls, "[CALL_ID]a1B2c3D4e"),
            "list": lambda calls: f"[TOOL_CALLS]{_listed(calls)}",
            "list after a space": lambda calls: f"[TOOL_CALLS] {_listed(calls)}",
        },
        thought=("[THINK]", "[/THINK]"),
    ),
    "granite": Family(
        spells={
            "tags": _hermes,
            "list": lambda calls: f"<|tool_call|>{_listed(calls)}",
        },
        thought=THINK,
        before_text=("", "<response>", "<response>\n"),
    ),
    "deepseek": Family(
        spells={"plain": _deepseek, "in fences": _fenced}, thought=THINK
    ),
    "harmony": Family(
        spells={"channel first": _harmony, "recipient first": _harmony_first},
        n_calls=1,
        thought=("<|channel|>analysis<|message|>", "<|end|>"),
        goes_on="<|start|>assistant",
        before_text=(
            "",
            "<|channel|>final<|message|>",
            "<|channel|>final <|constrain|>json<|message|>",
        ),
    ),
}
"""By the names of dialects."""

WAYS: Final = [
    (name, way) for name, family in FAMILIES.items() for way in family.spells
]
"""Every family with each of its ways to write calls."""
