"""The command of the trial."""

import argparse
import platform
import sys
import time
from pathlib import Path
from typing import Final

from tools.accelerator_trial.archive import write_archive
from tools.accelerator_trial.build import FLAGS, build, enter_environment
from tools.accelerator_trial.markdown import markdown
from tools.accelerator_trial.testing import test
from tools.accelerator_trial.workspace import (
    CUT_OFF,
    CutOffError,
    Deadline,
    TrialError,
    Workspace,
    say,
)

LIMIT_S: Final = 540.0
"""Seconds of a call: below the ten minutes that such machines often give a command."""
FAILED: Final = 2


def main() -> int:
    """Do one step, or a part of it."""
    options = parsed(sys.argv[1:])
    work = Workspace(options.work.resolve(), options.backend)
    deadline = Deadline.after(options.limit_s)
    began_at = time.monotonic()
    try:
        step(work, deadline, options)
    except CutOffError as error:
        status, outcome = CUT_OFF, f"cut off, {error}; call this step again"
    except TrialError as error:
        status, outcome = FAILED, f"failed: {error}"
    else:
        status, outcome = 0, "done"
    say(f"{options.step}: {outcome}")
    if options.step != "archive":
        note(work, options.step, outcome, time.monotonic() - began_at)
    return status


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m tools.accelerator_trial", description=__doc__
    )
    parser.add_argument(
        "--step", required=True, choices=("archive", "build", "test", "bench")
    )
    parser.add_argument("--backend", required=True, choices=sorted(FLAGS))
    parser.add_argument(
        "--work", required=True, type=Path, help="directory of the trial"
    )
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="%(default)s")
    parser.add_argument(
        "--python",
        default=".".join(platform.python_version_tuple()[:2]),
        help="archive: version of the other machine's Python; %(default)s",
    )
    parser.add_argument(
        "--with-cmake", action="store_true", help="archive: CMake travels, 29 MiB"
    )
    parser.add_argument("--model", default="llama-3b", help="bench: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="bench: %(default)s")
    parser.add_argument(
        "--quick", action="store_true", help="bench: short prompts and answers"
    )
    return parser.parse_args(arguments)


def step(work: Workspace, deadline: Deadline, options: argparse.Namespace) -> None:
    """Do the step that was asked for.

    Raises:
        CutOffError: the time is over.
        TrialError: it cannot be done.
    """
    match options.step:
        case "archive":
            write_archive(work, options.python, has_cmake=options.with_cmake)
        case "build":
            build(work, deadline)
        case "test":
            enter_environment(work)
            test(work, deadline)
        case _:
            enter_environment(work)
            # it imports what the environment alone has
            from bench.lab import Sizes  # noqa: PLC0415
            from tools.accelerator_trial.benching import (  # noqa: PLC0415
                QUICK,
                Extent,
                bench,
            )

            sizes = QUICK if options.quick else Sizes()
            bench(work, deadline, Extent(options.model, options.rounds, sizes))


def note(work: Workspace, name: str, outcome: str, seconds: float) -> None:
    """Write into the report what became of a call, and the report for people."""
    steps = work.part("steps") or {}
    known = steps.get(name, {"calls": 0, "seconds": 0.0})
    steps[name] = {
        "outcome": outcome,
        "calls": known["calls"] + 1,
        "seconds": known["seconds"] + seconds,
    }
    work.add_to_report("steps", steps)
    (work.path / "report.md").write_text(markdown(work.report()))


if __name__ == "__main__":
    sys.exit(main())
