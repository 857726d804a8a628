"""Three figures of the daemon, with all layers on the accelerator and with none.

They are those of `make bench`, of the daemon alone: tokens per second of a long prompt, of one
answer, and of eight at once. Each round is kept when it is measured.
"""

import json
import os
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bench.daemon import connected, running_daemon
from bench.lab import Lab, ModelFile, Sizes, Take
from bench.measures.cold_prefill import long_cold_prompt
from bench.measures.concurrent import eight
from bench.measures.single_stream import single_stream
from bench.run import FAILURES
from bench.sides import tables_for
from inferd import surfaces
from tools.accelerator_trial.random_model import SHAPES, write_random_model
from tools.accelerator_trial.workspace import Deadline, TrialError, Workspace, say

MEASURES: Final[dict[str, Callable[[Lab], AbstractContextManager[Take]]]] = {
    "prefill": long_cold_prompt,
    "single_stream": single_stream,
    "clients_8": eight,
}
SIZES: Final = ("long_prompt", "stream_tokens", "concurrent_tokens")
"""What of the sizes the figures depend on."""
QUICK: Final = Sizes(long_prompt=256, stream_tokens=64)
"""Answers of eight clients are as long as ever: shorter ones may not run at the same time."""
LAYERS: Final = {"accelerator": -1, "processor": 0}
DEVICE_FIELDS: Final = (
    *("accelerator", "device_name", "vram_total_bytes", "vram_free_bytes"),
    *("gpu_layers", "n_layers", "cpu_variant"),
)
MIN_ROUND_S: Final = 60.0
"""Seconds that must be left for another side: its daemon loads the model first."""


@dataclass(frozen=True)
class Extent:
    """What is measured."""

    shape: str
    """Of the model, a key of ``SHAPES``."""
    n_rounds: int
    """Of each figure."""
    sizes: Sizes
    """Of prompts and answers."""


def bench(work: Workspace, deadline: Deadline, how: Extent) -> None:
    """Measure what has not been measured yet.

    Args:
        work: where figures are kept.
        deadline: when this call ends.
        how: what is measured.

    Raises:
        CutOffError: the time is over.
        TrialError: a daemon does not start, or does not answer.
    """
    try:
        measure(work, deadline, how)
    except FAILURES as error:
        raise TrialError(f"{type(error).__name__}: {error}") from error


def measure(work: Workspace, deadline: Deadline, how: Extent) -> None:
    """Measure what has not been measured yet.

    Raises:
        CutOffError: the time is over.
    """
    shape = how.shape
    model = work.path / f"{shape}.gguf"
    if not model.is_file():
        say(f"writing {model.name}")
        write_random_model(model, SHAPES[shape])
    figures = kept_figures(work.part("bench") or {}, how)
    figures["model_bytes"] = model.stat().st_size
    for side, n_layers in LAYERS.items():
        lab = Lab(
            ModelFile(shape, model),
            frozenset({"inferd"}),
            n_threads=os.cpu_count() or 1,
            n_gpu_layers=n_layers,
            sizes=how.sizes,
        )
        if side not in figures:
            figures[side] = placed(lab)
        for name, opened in MEASURES.items():
            key = f"{name}.{side}"
            keep = partial(work.add_to_report, "bench", figures)
            taken = figures["rounds"].setdefault(key, [])
            take_rounds(partial(opened, lab), (taken, how.n_rounds), deadline, keep)
    figures["figures"] = summary(figures["rounds"])
    work.add_to_report("bench", figures)


def kept_figures(known: dict[str, Any], how: Extent) -> dict[str, Any]:
    """Return the figures of earlier calls; none if they are of something else."""
    sizes = {name: getattr(how.sizes, name) for name in SIZES}
    measured = {"model": how.shape, "sizes": sizes}
    if {name: known.get(name) for name in measured} == measured:
        return known
    return {**measured, "rounds": {}}


def take_rounds(
    measure: Callable[[], AbstractContextManager[Take]],
    taken: tuple[list[float], int],
    deadline: Deadline,
    keep: Callable[[], None],
) -> None:
    """Measure the rounds of one figure and side that are missing.

    Raises:
        CutOffError: the time is over.
    """
    rounds, n_rounds = taken
    if len(rounds) >= n_rounds:
        return
    Deadline(deadline.at - MIN_ROUND_S).check("measuring")
    with measure() as take:
        while len(rounds) < n_rounds:
            deadline.check(f"measuring: {len(rounds)} rounds of a figure")
            rounds.append(take(len(rounds)).values["inferd"])
            keep()


def placed(lab: Lab) -> dict[str, Any]:
    """Say where the layers of the model are, as the daemon tells it."""
    tables = tables_for(lab, n_slots=1, n_ctx=512)
    with (
        running_daemon(tables, surfaces.V2.socket, surfaces.ADMIN.socket) as daemon,
        connected(daemon.directory / surfaces.ADMIN.socket) as sock,
    ):
        lines = sock.makefile("rb")
        frames = (json.loads(line) for line in lines)
        found = next(each for each in frames if each.get("status") == "capabilities")
    return {name: found[name] for name in DEVICE_FIELDS if name in found}


def summary(rounds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Compute the medians, and the accelerator's divided by the processor's."""
    found = {}
    for name in MEASURES:
        sides = {side: statistics.median(rounds[f"{name}.{side}"]) for side in LAYERS}
        ratio = sides["accelerator"] / sides["processor"]
        found[name] = {**sides, "ratio": ratio}
    return found
