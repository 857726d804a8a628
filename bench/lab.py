"""What a run measures with: a model, sides, sizes; and what it did."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from bench.figures import Goal, Reading

T = TypeVar("T")

BEFORE: Final = "before"
"""The side that is the daemon of an earlier revision."""
SIDES: Final = ("inferd", "peer", "raw", "server_py", "whisper_cli")
"""The daemon; llama-server; llama.cpp's benchmarks; the binding's own server; whisper.cpp's
command line."""


@dataclass(frozen=True)
class ModelFile:
    """A model, and what it is told about its prompts."""

    name: str
    path: Path
    family: str | None = None
    """``chat_template`` of its backend, where its file does not tell."""


@dataclass(frozen=True)
class Sizes:
    """How much is read and written."""

    stream_tokens: int = 128
    """As llama-bench's ``tg128``."""
    concurrent_tokens: int = 96
    shared_prefix: int = 2000
    long_prompt: int = 3000
    held_tokens: int = 120
    n_texts: int = 300
    sound_s: float = 120.0
    n_sentences: int = 24
    client_counts: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    client_tokens: int = 32
    prompt_lengths: tuple[int, ...] = (128, 512, 2048, 8192)


QUICK: Final = Sizes(
    stream_tokens=64,
    concurrent_tokens=32,
    shared_prefix=64,
    long_prompt=128,
    held_tokens=120,
    n_texts=8,
    sound_s=5.0,
    n_sentences=2,
    client_counts=(1, 2),
    client_tokens=32,
    prompt_lengths=(64, 128),
)
"""To see that everything runs, not to measure."""


@dataclass(frozen=True)
class Lab:
    """One model on this machine."""

    model: ModelFile
    sides: frozenset[str]
    n_threads: int
    n_gpu_layers: int = 0
    """Layers on the accelerator; -1 for all."""
    sizes: Sizes = Sizes()
    is_patient: bool = False
    """Wait until servers are idle after their start before they are measured."""
    commands: dict[str, None] = field(default_factory=dict)
    """Command lines and configurations, each once, in order."""
    absent: dict[str, str] = field(default_factory=dict)
    """Sides that did not come up, and why; they are not tried again."""
    earlier: Path | None = None
    """Where the earlier revision of the side ``BEFORE`` is, with its own environment."""

    def has(self, side: str) -> bool:
        """Tell whether a side is to be measured, and can be."""
        return side in self.sides and side not in self.absent

    @property
    def daemons(self) -> dict[str, Path | None]:
        """The sides that are daemons of this project, each with its checkout if not this."""
        checkouts = {"inferd": None, BEFORE: self.earlier}
        return {side: path for side, path in checkouts.items() if self.has(side)}

    def note(self, command: Sequence[str]) -> None:
        """Keep a command line, without the places of this machine."""
        words = [Path(word).name if word.startswith("/") else word for word in command]
        self.commands[" ".join(words)] = None

    def note_text(self, text: str) -> None:
        """Keep a configuration, without the places of this machine."""
        self.commands[text.replace(str(self.model.path), self.model.path.name)] = None


Take = Callable[[int], Reading]
"""Measures one round, which is given by its number."""


@dataclass(frozen=True)
class Measure:
    """One figure of the report."""

    key: str
    title: str
    unit: str
    is_more_better: bool
    open: Callable[[Lab], AbstractContextManager[Take]]
    """Starts what it needs, and warms it up."""
    goals: tuple[Goal, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a side has no value."""
    also: Mapping[str, str] = field(default_factory=dict)
    """Details of each side that are summed up as well, in the same unit, and their titles."""
    is_long: bool = False
    """Whether a round takes so long that there are about half as many."""

    def rounds_of(self, n_rounds: int) -> int:
        """Give its rounds in a run of so many: an odd number stays odd where it can."""
        return n_rounds // 4 * 2 + 1 if self.is_long else n_rounds


class OneSide(NamedTuple):
    """What one side did in a round."""

    value: float
    """In the measure's unit."""
    details: Mapping[str, Any] = {}
    """What else was seen."""


def reading(number: int, sides: Mapping[str, Callable[[], OneSide]]) -> Reading:
    """Measure every side once, in turns; give all that was seen."""
    seen = in_turns(number, sides)
    return Reading(
        {name: each.value for name, each in seen.items()},
        {name: each.details for name, each in seen.items() if each.details},
    )


def in_turns(number: int, sides: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Measure every side once, another one first in each round."""
    names = list(sides)
    start = number % len(names) if names else 0
    return {name: sides[name]() for name in names[start:] + names[:start]}
