"""Break whatever can break, and see the daemon keep its word.

make torture                       # all of it, in full: hours
python -m torture --short          # all of it, in a minute or two
python -m torture R1 R4 --seed 7   # some of it
"""

import argparse
import secrets
import sys
from pathlib import Path
from typing import Final

from bench.machine import machine
from torture.catalogue import BY_KEY, ITEMS
from torture.outcome import Context, Outcome, Size, Verdict
from torture.report import MACHINE, read_report, write_report
from torture.trial import try_item

REPORT: Final = Path(__file__).resolve().parents[1] / "tests" / "torture"


def main() -> int:
    """Try all that is asked for; write the report as it grows."""
    arguments = parsed()
    size = Size.SHORT if arguments.short else Size.FULL
    facts = machine()
    n_broken = 0
    for key in arguments.items or BY_KEY:
        seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
        say(f"{key}: {BY_KEY[key].NAME}, {size}, seed {seed}")
        outcome = try_item(BY_KEY[key], Context(size, seed))
        n_broken += outcome.verdict is Verdict.BROKEN
        say(words(outcome))
        report = read_report(arguments.output)
        report.machine = {name: facts[name] for name in MACHINE if name in facts}
        report.add(outcome)
        write_report(report, arguments.output)
    return 1 if n_broken else 0


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m torture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{item.KEY:4} {item.NAME}" for item in ITEMS),
    )
    parser.add_argument("items", nargs="*", metavar="ITEM", help="R1, say; all without")
    parser.add_argument("--short", action="store_true", help="what the tests run")
    parser.add_argument("--seed", type=int, help="of everything drawn; else a new one")
    parser.add_argument("--output", type=Path, default=REPORT, metavar="DIRECTORY")
    arguments = parser.parse_args()
    unknown = [key for key in arguments.items if key not in BY_KEY]
    if unknown:
        parser.error(
            f"no such item: {', '.join(unknown)}; allowed: {', '.join(BY_KEY)}"
        )
    return arguments


def words(outcome: Outcome) -> str:
    """Tell an outcome in a line, and what it counted in another."""
    reason = f": {outcome.reason}" if outcome.reason else ""
    told = f"{outcome.item}: {outcome.verdict.upper()} in {outcome.seconds} s{reason}"
    return f"{told}\n    {outcome.counts} {outcome.figures}"


def say(text: str) -> None:
    """Tell the person who waits."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
