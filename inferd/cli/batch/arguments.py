"""The options of commands that ask for many things."""

import argparse
from pathlib import Path

from inferd.cli.batch.ordered import JOBS_MAX
from inferd.cli.numbers import int_range


def add_jobs_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for requests at once."""
    parser.add_argument(
        "--jobs",
        type=int_range(1, JOBS_MAX),
        default=1,
        metavar="N",
        help=f"requests at once, at most {JOBS_MAX} (default 1); results stay in order",
    )


def add_output_arguments(parser: argparse.ArgumentParser, kinds: str) -> None:
    """Add the options for the file of the results."""
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help=f"write the results there, {kinds} (default: JSON lines on stdout)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with FILE: leave out as many inputs as it has whole results",
    )
