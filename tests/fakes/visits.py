"""Clients that come, ask, and stay, leave or stop reading; what they may see of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import trio
from hypothesis import strategies as st

from inferd.config import AdmissionSettings
from inferd.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    InvalidRequestError,
)
from tests.fakes.backend import FOR_EVER, Script
from tests.fakes.streams import TERMINAL, Frame, FrameClient, generate

LONG_S: Final = 1000
"""Virtual seconds after which whatever can happen has happened."""

SELDOM: Final = 6
"""Times that nothing goes wrong for each way in which something may."""


@dataclass(frozen=True)
class Behaviour:
    """What one client does."""

    n_requests: int
    half_closes: bool
    leaves_s: float
    n_frames: float
    """Frames after which it stops reading."""

    @property
    def stays(self) -> bool:
        """Whether it reads to the end."""
        return self.leaves_s == self.n_frames == FOR_EVER


BEHAVIOURS = st.builds(
    Behaviour,
    n_requests=st.integers(1, 3),
    half_closes=st.booleans(),
    leaves_s=st.sampled_from([FOR_EVER, FOR_EVER, 0, 0.5, 1.5, 4]),
    n_frames=st.sampled_from([FOR_EVER, FOR_EVER, 0, 1, 2]),
)

ADMISSION = st.builds(
    AdmissionSettings, max_active=st.integers(1, 3), max_queued=st.integers(0, 3)
)


def scripts(*delays_s: float) -> st.SearchStrategy[list[Script]]:
    """Draw what a backend does, bugs and all, with delays among these."""
    script = st.builds(
        Script,
        prepare_s=st.sampled_from(delays_s),
        refusal=_seldom(
            InvalidRequestError("no"), ContextOverflowError(9, 8), ZeroDivisionError()
        ),
        tokens=st.sampled_from([(), ("a",), ("a", "b", "c"), ("x" * 400_000, "y")]),
        token_delay_s=st.sampled_from(delays_s),
        failure=_seldom(BackendUnavailableError("gone"), ZeroDivisionError()),
        ends_without_done=st.sampled_from([False] * SELDOM + [True]),
        failure_after_done=_seldom(
            BackendUnavailableError("gone"), ZeroDivisionError()
        ),
    )
    return st.lists(script, min_size=1, max_size=8)


def _seldom(*failures: Exception) -> st.SearchStrategy[Exception | None]:
    return st.sampled_from([*(None,) * SELDOM, *failures])


async def visit(client: FrameClient, behaviour: Behaviour, seen: list[Frame]) -> None:
    """Behave; note the frames that were seen."""
    patience_s = FOR_EVER if behaviour.stays else min(behaviour.leaves_s, LONG_S)
    last_id = f"r{behaviour.n_requests - 1}"
    with trio.move_on_after(patience_s):
        async with client:
            for n in range(behaviour.n_requests):
                await client.send(generate(f"r{n}"))
            if behaviour.half_closes:
                await client.half_close()
            while len(seen) < behaviour.n_frames:
                frame = await client.frame()
                if frame is None:
                    return
                seen.append(frame)
                if behaviour.stays and frame["id"] == last_id and _is_terminal(frame):
                    await client.half_close()  # and see that nothing follows
            await trio.sleep_forever()


def n_answers(frames: list[Frame]) -> int:
    """Make sure that answers are whole and in order; give how many there are."""
    answers = list(_answers_of(frames))
    for n, answer in enumerate(answers):
        assert {frame["id"] for frame in answer} == {f"r{n}"}
    return len(answers)


def _answers_of(frames: list[Frame]) -> Iterator[list[Frame]]:
    """Cut frames after each terminal one."""
    answer: list[Frame] = []
    for frame in frames:
        answer.append(frame)
        if _is_terminal(frame):
            yield answer
            answer = []
    assert answer == [], "an answer without an end"


def _is_terminal(frame: Frame) -> bool:
    return frame["type"] in TERMINAL
