"""Transcripts: conversations as a family writes them, and the events of its answers.

A file is data alone; ``made-up.toml`` shows all that there is to write.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from inferd.backend.events import Text, Thinking, ToolUse
from inferd.backend.interface import Prepared
from inferd.backend.job import (
    GenerateJob,
    Sampling,
    Structure,
    ToolChoice,
    ToolSpec,
    Turn,
)
from inferd.dialects.dialect import Dialect
from inferd.output.parser import Block

FOLDER = Path(__file__).parent / "transcripts"
SAMPLING = Sampling(temperature=0, top_p=1, top_k=0, seed=0)
ANY = Structure(kind="json_schema", source="true")


class Event(Struct, forbid_unknown_fields=True):
    """One of text, a thought, and a call with its input."""

    text: str = ""
    thinking: str = ""
    tool_use: str = ""
    input: dict[str, Any] | None = None


class Case(Struct, kw_only=True, forbid_unknown_fields=True):
    """A conversation, and one answer to it."""

    name: str
    """What it shows."""
    turns: list[Turn]
    tools: list[str] = []
    """Names in ``tools.toml``."""
    tool_choice: ToolChoice = ToolChoice()
    thinks: bool = False
    is_structured: bool = False
    """Whether the text of the answer is held to a structure."""
    prompt: str | None = None
    """What the family's own renderer writes."""
    answer: str = ""
    """What the model writes."""
    answer_hex: str = ""
    """The same where it is no text."""
    opens_thought: bool | None = None
    """Whether the prompt ends inside a thought; without it, the prompt tells."""
    was_cut: bool = False
    """Whether the model would have gone on."""
    stops: list[str] = []
    events: list[Event] = []
    """All of the answer, runs of text and of thought as one."""
    malformed: list[str] = []
    """What warnings quote."""

    @property
    def raw(self) -> bytes:
        """The bytes of the answer."""
        return bytes.fromhex(self.answer_hex) or self.answer.encode()

    @property
    def blocks(self) -> list[Block]:
        """The events as the parser has them."""
        blocks: list[Block] = []
        for event in self.events:
            n_calls = sum(isinstance(block, ToolUse) for block in blocks)
            blocks.append(_block(event, f"tc-{n_calls}"))
        return blocks

    def prepared(self, dialect: Dialect) -> Prepared[GenerateJob]:
        """Make the job that a stream is given."""
        open_thought = dialect.open_thought(self.prompt or "")
        if self.opens_thought is not None:
            thoughts = dialect.thoughts if self.opens_thought else []
            open_thought = thoughts[0].begins[0] if thoughts else ""
        job = GenerateJob(
            turns=self.turns,
            tools=tools_named(self.tools),
            tool_choice=self.tool_choice,
            thinks=self.thinks,
            structure=ANY if self.is_structured else None,
            max_tokens=99,
            sampling=SAMPLING,
            stops=tuple(self.stops),
        )
        return Prepared(ticket=1, job=job, input_tokens=3, open_thought=open_thought)


class _Transcripts(Struct, forbid_unknown_fields=True):
    case: list[Case]


def cases_of(family: str) -> list[Case]:
    """Read a family's transcripts."""
    path = FOLDER / f"{family}.toml"
    if not path.exists():  # which a test of its own finds
        return []
    return msgspec.toml.decode(path.read_bytes(), type=_Transcripts).case


@cache
def _all_tools() -> dict[str, ToolSpec]:
    written = tomllib.loads((FOLDER / "tools.toml").read_text())
    return {name: ToolSpec(name=name, **fields) for name, fields in written.items()}


def tools_named(names: list[str]) -> tuple[ToolSpec, ...]:
    """Give tools in the order in which they are named."""
    return tuple(_all_tools()[name] for name in names)


def _block(event: Event, call_id: str) -> Block:
    if event.tool_use:
        assert event.input is not None, "a call has its input"
        return ToolUse(tool_call_id=call_id, name=event.tool_use, input=event.input)
    assert event.text or event.thinking, "an event of nothing"
    return Text(event.text) if event.text else Thinking(event.thinking)
