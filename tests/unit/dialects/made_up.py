"""A family that nobody trains: every kind of region, with markers that are short."""

from collections.abc import Sequence

from inferd.backend.job import ToolSpec, Turn
from inferd.dialects.dialect import Dialect, Region
from inferd.dialects.lark import LarkBuilder
from tests.unit.output.oracle import read_calls


def _render(turns: Sequence[Turn], tools: Sequence[ToolSpec], thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    known = [f"tool {tool.name}\n" for tool in tools]
    said = [f"{turn.role} {turn.text}\n" for turn in turns]
    return "".join([*known, *said, "assistant ", "<t>" if thinks else ""])


def _write_calls(lark: LarkBuilder, tools: Sequence[ToolSpec]) -> str:
    return " | ".join(lark.marker("{}</c>", after=f"<c>{tool.name}") for tool in tools)


MADE_UP = Dialect(
    name="made-up",
    regions=(
        Region(holds="thought", begins=("<t>",), ends=("</t>",)),
        Region(holds="calls", begins=("<c>",), ends=("</c>",), read=read_calls),
        Region(holds="calls", begins=("[CALLS]",), read=read_calls),
        Region(
            holds="calls",
            begins=("get_weather{",),
            read=read_calls,
            only_first=True,
            keeps_begin=True,
        ),
        Region(holds="nothing", begins=("<|start|>assistant",), ends=("",)),
        Region(holds="text", begins=("<|say|>",), ends=("<|end|>",)),
    ),
    render=_render,
    write_calls=_write_calls,
    recognises=lambda architecture, _: architecture == "made-up",
)
