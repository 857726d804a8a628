"""The command line of a list of items, which are tried one after another."""

import argparse
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from bench.machine import machine
from torture.catalogue import Item
from torture.outcome import Context, Outcome, Size, Verdict
from torture.report import MACHINE, Layout, read_report, write_report
from torture.trial import try_item


class Command(NamedTuple):
    """A list of items, and what is said of it."""

    program: str
    description: str
    items: Sequence[Item]
    layout: Layout
    output: Path
    """Directory of the report."""


def run_command(command: Command) -> int:
    """Try all that is asked for; write the report as it grows."""
    by_key = {item.KEY: item for item in command.items}
    arguments = _parsed(command, [*by_key])
    size = Size.SHORT if arguments.short else Size.FULL
    facts = machine()
    kept: dict[str, str | int] = {
        name: facts[name] for name in MACHINE if name in facts
    }
    n_broken = 0
    for key in arguments.items or by_key:
        seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
        _say(f"{key}: {by_key[key].NAME}, {size}, seed {seed}")
        outcome = try_item(by_key[key], Context(size, seed))
        n_broken += outcome.verdict is Verdict.BROKEN
        _say(_words(outcome))
        report = read_report(arguments.output)
        report.machine = report.machine or kept
        report.add(replace(outcome, machine=kept), command.layout)
        write_report(report, arguments.output, command.layout)
    return 1 if n_broken else 0


def _parsed(command: Command, keys: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog=command.program,
        description=command.description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{item.KEY:4} {item.NAME}" for item in command.items),
    )
    parser.add_argument(
        "items", nargs="*", metavar="ITEM", help=f"{keys[0]}, say; all without"
    )
    parser.add_argument("--short", action="store_true", help="what the tests run")
    parser.add_argument("--seed", type=int, help="of everything drawn; else a new one")
    parser.add_argument(
        "--output", type=Path, default=command.output, metavar="DIRECTORY"
    )
    arguments = parser.parse_args()
    unknown = [key for key in arguments.items if key not in keys]
    if unknown:
        parser.error(f"no such item: {', '.join(unknown)}; allowed: {', '.join(keys)}")
    return arguments


def _words(outcome: Outcome) -> str:
    """Tell an outcome in a line, and what it counted in another."""
    reason = f": {outcome.reason}" if outcome.reason else ""
    told = f"{outcome.item}: {outcome.verdict.upper()} in {outcome.seconds} s{reason}"
    return f"{told}\n    {outcome.counts} {outcome.figures}"


def _say(text: str) -> None:
    """Tell the person who waits."""
    print(text, flush=True)
