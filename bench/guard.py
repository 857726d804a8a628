"""Guard against slower versions: the present tree beside an earlier one, in one run.

make bench-guard                            # against the last tag
make bench-guard REVISION=HEAD~20           # against another revision
python -m bench.guard --only single_stream  # one figure of each model

Both daemons are measured in turns, each with its own environment; a ratio that falls below
``LEAST`` is named, and then the command fails.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.lab import BEFORE, QUICK, Lab, Sizes
from bench.measures.cold_prefill import COLD_PREFILL
from bench.measures.concurrent import CONCURRENT
from bench.measures.json_schema import JSON_SCHEMA
from bench.measures.memory import RSS
from bench.measures.ready import READY
from bench.measures.single_stream import SINGLE_STREAM
from bench.measures.stall import STALL
from bench.measures.warm_prefix import WARM_PREFIX
from bench.models import DEFAULT, NoModelError, model_file
from bench.run import Results, Rounds, say

LEAST: Final = 0.97
"""The least ratio to the earlier revision that is no loss."""
ROOT: Final = Path(__file__).parent.parent
GUARDED: Final = (
    *(SINGLE_STREAM, CONCURRENT, WARM_PREFIX, STALL),
    *(COLD_PREFILL, JSON_SCHEMA, READY, RSS),
)


class NoRevisionError(Exception):
    """There is nothing to compare with; the text is why."""


def main() -> int:
    """Measure both trees; tell each ratio, and fail if one has fallen."""
    # As Ctrl-C: whoever serves is ended, and the earlier tree removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = parsed()
    try:
        revision = arguments.revision or last_tag(ROOT)
        with checkout(ROOT, revision) as earlier:
            prepare(earlier)
            results = measured(arguments, earlier)
    except NoRevisionError as error:
        sys.exit(str(error))
    for line in told(results.measures, revision):
        print(line)
    for line in results.failed:
        say(f"not measured: {line}")
    return 1 if results.failed or fallen(results.measures) else 0


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.guard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    keys = [each.key for each in GUARDED]
    parser.add_argument("--revision", help="in place of the last tag")
    parser.add_argument("--only", action="append", default=[], choices=keys)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tries", type=int, default=2, help="at a quiet moment")
    parser.add_argument("--quick", action="store_true", help="to see that it runs")
    return parser.parse_args()


# --- the earlier revision -----------------------------------------------------------------


def last_tag(root: Path) -> str:
    """Return the last tag before the present commit.

    Raises:
        NoRevisionError: there is none.
    """
    found = git(root, "describe", "--tags", "--abbrev=0")
    if found.returncode:
        raise NoRevisionError("there is no tag; name a revision: --revision REVISION")
    return found.stdout.decode().strip()


@contextmanager
def checkout(root: Path, revision: str) -> Iterator[Path]:
    """Have the files of a revision in a directory while inside.

    Raises:
        NoRevisionError: there is no such revision.
    """
    with tempfile.TemporaryDirectory(prefix="inferd-guard-") as scratch:
        archive = git(root, "archive", "--format=tar", revision)
        if archive.returncode:
            raise NoRevisionError(archive.stderr.decode().strip())
        subprocess.run(
            ["tar", "--extract", "--directory", scratch],
            input=archive.stdout,
            check=True,
        )
        yield Path(scratch)


def git(root: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Ask git."""
    return subprocess.run(["git", "-C", root, *words], capture_output=True, check=False)


def prepare(earlier: Path) -> None:
    """Give an earlier revision its own environment, with what it depends on."""
    say("setting up the earlier revision")
    subprocess.run(
        ["make", "-C", earlier, "setup"], stdout=subprocess.DEVNULL, check=True
    )


# --- the comparison -----------------------------------------------------------------------


def measured(arguments: argparse.Namespace, earlier: Path) -> Results:
    """Measure each model on both."""
    rounds = Rounds(
        n_rounds=1 if arguments.quick else arguments.rounds,
        tries=1 if arguments.quick else arguments.tries,
        growth_rounds=0,
        only=frozenset(arguments.only),
    )
    lab_of = partial(
        Lab,
        sides=frozenset({"inferd", BEFORE}),
        n_threads=len(os.sched_getaffinity(0)),
        sizes=QUICK if arguments.quick else Sizes(),
        is_patient=not arguments.quick,
        earlier=earlier,
    )
    results = Results(keep=lambda: None)
    for named in DEFAULT:
        try:
            lab = lab_of(model_file(named))
        except NoModelError as error:
            say(f"{named}: {error}")
            continue
        results.add(lab, GUARDED, rounds, model=lab.model.name)
    return results


Figures = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By key and model, as in ``report.json``."""


def kept(figure: Mapping[str, Any]) -> float | None:
    """Return how much of the earlier revision's figure is left: more is better."""
    ratio = figure.get(f"ratio_{BEFORE}")
    if ratio is None:
        return None
    return float(ratio if figure["more_is_better"] else 1 / ratio)


def fallen(measures: Figures) -> list[str]:
    """List what fell below the least ratio, by key and model."""
    return [
        f"{key} of {model}"
        for key, models in measures.items()
        for model, figure in models.items()
        if (ratio := kept(figure)) is not None and ratio < LEAST
    ]


def told(measures: Figures, revision: str) -> list[str]:
    """Put each figure into words, and then those that have fallen."""
    lines = [
        f"{key} of {model}: {ratio:.3f} of {revision}'s, {spread_of(figure)}"
        for key, models in measures.items()
        for model, figure in models.items()
        if (ratio := kept(figure)) is not None
    ]
    lines += [f"fell below {LEAST}: {each}" for each in fallen(measures)]
    return lines or ["nothing was compared"]


def spread_of(figure: Mapping[str, Any]) -> str:
    """Put a figure's rounds into words."""
    sides = figure["spread"]
    return "; ".join(
        f"{name} {sides[side]['min']:g} … {sides[side]['max']:g} {figure['unit']}"
        for name, side in (("now", "inferd"), ("before", BEFORE))
    )


if __name__ == "__main__":
    sys.exit(main())
