"""What prompts of families have to hold, and the answers that they quote."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inferd.backend.job import PastCall, Turn
from inferd.dialects.dialect import Dialect, ParsedCall
from inferd.dialects.families.deepseek import DEEPSEEK
from inferd.dialects.families.granite import GRANITE
from inferd.dialects.families.harmony import HARMONY
from inferd.dialects.families.llama3 import LLAMA3
from inferd.dialects.families.mistral import MISTRAL
from inferd.dialects.rendering import arguments_of, to_json
from tests.unit.dialects.conversations import calling

# DeepSeek's bars are no ASCII
GRANITES: Final = "<|start_of_role|>assistant<|end_of_role|>"
LLAMAS: Final = "<|start_header_id|>assistant<|end_header_id|>\n\n"
HARMONYS: Final = "<|start|>assistant"


@dataclass(frozen=True, kw_only=True)
class Prompted:
    """What stands in a family's prompts, with an x for a name."""

    told: str
    """Where tools are, and only there."""
    tool: str = '"x"'
    call: Callable[[PastCall], str] = arguments_of
    quotes_results: bool = False
    hides_text_of_calls: bool = False
    trims: bool = False
    ends: str = ""
    thinks: Sequence[str] = ("", "")
    """Without a thought, and with one."""
    told_to_think: str = ""
    """Where tools are if a thought is wanted, if that is another place."""
    answers: Callable[[Turn], Iterator[str]]
    """Cuts what the assistant has written out of a prompt of nothing else."""

    def words(self, turn: Turn) -> list[str]:
        """Give what has to be found of a turn."""
        is_quoted = self.quotes_results and turn.role == "tool"
        text = to_json(turn.text) if is_quoted else turn.text
        text = text.strip() if self.trims else text
        is_hidden = self.hides_text_of_calls and turn.calls
        return [*([] if is_hidden else [text]), *map(self.call, turn.calls)]


def _rendered(dialect: Dialect, turn: Turn) -> str:
    return dialect.render([turn], [], False)


def _deepseeks(turn: Turn) -> Iterator[str]:
    assert DEEPSEEK.tools_as_text is not None
    (plain,) = DEEPSEEK.tools_as_text([turn], [])
    assert f"</think>{plain.text}" in _rendered(DEEPSEEK, turn)
    yield plain.text


def _granites(turn: Turn) -> Iterator[str]:
    prompt = _rendered(GRANITE, turn)
    yield prompt.removeprefix(GRANITES).removesuffix(f"<|end_of_text|>\n{GRANITES}")
    assert GRANITE.tools_as_text is not None
    yield from (each.text for each in GRANITE.tools_as_text([turn], []))


def _harmonys(turn: Turn) -> Iterator[str]:
    _, _, written = _rendered(HARMONY, turn).partition(f"<|end|>{HARMONYS}")
    answer = written.removesuffix(HARMONYS)
    yield from (answer, HARMONYS + answer)


def _llamas(turn: Turn) -> Iterator[str]:
    parts = _rendered(LLAMA3, turn).split(LLAMAS)[1:-1]
    written = [part.split("<|eot_id|>")[0] for part in parts]
    yield from ("; ".join(written), "<|python_tag|>" + "\n".join(written))


def _mistrals(turn: Turn) -> Iterator[str]:
    yield _rendered(MISTRAL, turn).removesuffix("</s>")


PROMPTED: Final[Mapping[str, Prompted]] = {
    "deepseek": Prompted(told="## Tools\n", tool="### x\n", answers=_deepseeks),
    "granite": Prompted(
        told="<tools></tools>",
        told_to_think="<|start_of_role|>available_tools",
        thinks=("", "between <think></think>"),
        ends=GRANITES,
        answers=_granites,
    ),
    "harmony": Prompted(
        told="namespace functions {",
        tool="type x = (",
        quotes_results=True,
        thinks=("Reasoning: low\n", "Reasoning: medium\n"),
        ends=HARMONYS,
        answers=_harmonys,
    ),
    "llama3": Prompted(
        told="Given the following functions",
        call=lambda call: to_json(call.name),
        quotes_results=True,
        hides_text_of_calls=True,
        trims=True,
        ends=LLAMAS,
        answers=_llamas,
    ),
    "mistral": Prompted(
        told="[AVAILABLE_TOOLS]",
        call=lambda call: f"[TOOL_CALLS]{call.name}[ARGS]{arguments_of(call)}",
        answers=_mistrals,
    ),
}
"""Families that write prompts in ways of their own, around what is said in them."""


def answers_quoted(family: str, calls: Sequence[ParsedCall]) -> list[str]:
    """Give the answers that prompts hold of a turn in which the assistant has called."""
    return [*PROMPTED[family].answers(calling(calls))]
