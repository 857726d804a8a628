"""Clients with random behaviour: they send, cancel, stop reading or disconnect."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import trio
from hypothesis import strategies as st

from inferd.config.settings import AdmissionSettings
from inferd.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    InvalidRequestError,
)
from tests.fakes.backend import FOR_EVER, Script
from tests.fakes.streams import REQUESTS, TERMINAL, Frame, FrameClient, cancel

LONG_S: Final = 1000
"""Virtual seconds after which everything that can happen has happened."""

N_WITHOUT: Final = 6
"""Times that nothing goes wrong for each way in which something may."""


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of one client."""

    leaf: str
    """File name of the socket it connects to."""
    n_requests: int
    options: dict[str, Any]
    """Fields of all its requests."""
    cancels: tuple[tuple[float, int], ...]
    """Times in seconds, and the numbers of the requests cancelled at them."""
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
    leaf=st.sampled_from(["infer.sock", *REQUESTS]),
    n_requests=st.integers(1, 3),
    options=st.fixed_dictionaries(
        {},
        optional={
            "stream": st.booleans(),
            "progress": st.just(value=True),
            "deadline_ms": st.sampled_from([500, 1000, 2500]),
        },
    ),
    cancels=st.lists(
        st.tuples(st.sampled_from([0, 0, 0.5, 1, 2.5]), st.integers(0, 3)), max_size=2
    ).map(tuple),
    half_closes=st.booleans(),
    leaves_s=st.sampled_from([FOR_EVER, FOR_EVER, 0, 0.5, 1.5, 4]),
    n_frames=st.sampled_from([FOR_EVER, FOR_EVER, 0, 1, 2]),
)

ADMISSION = st.builds(
    AdmissionSettings, max_active=st.integers(1, 3), max_queued=st.integers(0, 3)
)


def scripts(*delays_s: float) -> st.SearchStrategy[list[Script]]:
    """Draw scripts of a backend, with failures and bugs, and with delays among these."""
    script = st.builds(
        Script,
        prepare_s=st.sampled_from(delays_s),
        refusal=_rare_failure(
            InvalidRequestError("no"), ContextOverflowError(9, 8), ZeroDivisionError()
        ),
        tokens=st.sampled_from([(), ("a",), ("a", "b", "c"), ("x" * 400_000, "y")]),
        token_delay_s=st.sampled_from(delays_s),
        failure=_rare_failure(BackendUnavailableError("gone"), ZeroDivisionError()),
        ends_without_done=st.sampled_from([False] * N_WITHOUT + [True]),
        failure_after_done=_rare_failure(
            BackendUnavailableError("gone"), ZeroDivisionError()
        ),
    )
    return st.lists(script, min_size=1, max_size=8)


def _rare_failure(*failures: Exception) -> st.SearchStrategy[Exception | None]:
    return st.sampled_from([*(None,) * N_WITHOUT, *failures])


async def run_client(
    client: FrameClient, behaviour: Behaviour, seen: list[Frame]
) -> None:
    """Run a client; append the frames it reads to ``seen``."""
    patience_s = FOR_EVER if behaviour.stays else min(behaviour.leaves_s, LONG_S)
    last_id = f"r{behaviour.n_requests - 1}"
    cancels = _Cancels(client, behaviour)
    with trio.move_on_after(patience_s):
        async with client, trio.open_nursery() as nursery:
            for n in range(behaviour.n_requests):
                line = REQUESTS[behaviour.leaf](f"r{n}", **behaviour.options)
                await client.send(line)
            if behaviour.half_closes:
                await client.half_close()
            else:
                nursery.start_soon(cancels.send)
            while len(seen) < behaviour.n_frames:
                frame = await client.frame()
                if frame is None:
                    cancels.scope.cancel()
                    return
                seen.append(frame)
                if behaviour.stays and frame["id"] == last_id and _is_terminal(frame):
                    await cancels.end()
                    await client.half_close()  # and see that nothing follows
            await trio.sleep_forever()


class _Cancels:
    """Sends the cancels of one client at their times."""

    def __init__(self, client: FrameClient, behaviour: Behaviour) -> None:
        self._client = client
        self._behaviour = behaviour
        self._over = trio.Event()
        self.scope = trio.CancelScope()

    async def send(self) -> None:
        """Send the cancels."""
        with self.scope, suppress(trio.BrokenResourceError):
            for at_s, n in sorted(self._behaviour.cancels):
                await trio.sleep_until(at_s)
                await self._client.send(cancel(f"r{n}"))
        self._over.set()

    async def end(self) -> None:
        """Send no further cancels."""
        self.scope.cancel()
        if not self._behaviour.half_closes:
            await self._over.wait()


def n_answers(frames: list[Frame]) -> int:
    """Check that answers are complete and in order; return how many there are."""
    answers = list(_answers_of(frames))
    for n, answer in enumerate(answers):
        assert {frame["id"] for frame in answer} == {f"r{n}"}
    return len(answers)


def _answers_of(frames: list[Frame]) -> Iterator[list[Frame]]:
    """Split frames after each terminal frame."""
    answer: list[Frame] = []
    for frame in frames:
        answer.append(frame)
        if _is_terminal(frame):
            yield answer
            answer = []
    assert answer == [], "an answer without an end"


def _is_terminal(frame: Frame) -> bool:
    return frame["type"] in TERMINAL
