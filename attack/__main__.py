"""Attack a daemon as one user, and measure what another one is told.

make attack                                       # this checkout's daemon; an hour
python -m attack --only loop cancels              # some kinds, or some attacks
python -m attack --before OTHER --only loop       # another checkout's beside it, in turns
python -m attack --unit                           # the real unit, in a container
"""

import argparse
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attack.catalogue import ATTACKS, chosen
from attack.container import attack_unit
from attack.report import read_report, write_report
from attack.scene import Scene
from attack.target import ROOT, Running, Service
from attack.trial import Outcome, Verdict, try_attack
from attack.users import choose_group
from bench.machine import machine
from torture.report import MACHINE

REPORT: Final = ROOT / "attack" / "report.json"

CONFIG_FILE: Final = Path("/etc/inferd/config.toml")


def main() -> int:
    """Try all that is asked for, at each daemon in turn; write the report as it grows."""
    arguments = parsed()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if arguments.unit:
        return attack_unit(arguments.only, arguments.seconds, arguments.json)
    if arguments.group:
        choose_group(arguments.group)
    running = service(arguments)
    n_broken = 0
    for attack in chosen(arguments.only):
        for daemon, checkout in daemons(arguments).items():
            say(f"{attack.name} ({daemon}): {attack.about}")
            scene = Scene(
                checkout,
                arguments.seconds,
                arguments.scale,
                running=running,
            )
            outcome = try_attack(attack, scene)
            n_broken += outcome.verdict is Verdict.BROKEN
            say(words(outcome))
            enter(daemon, outcome, arguments.json)
    return 1 if n_broken else 0


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m attack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(
            f"{each.kind:12} {each.name:26} {each.about}" for each in ATTACKS
        ),
    )
    add = parser.add_argument
    add("--daemon", type=Path, default=ROOT, metavar="CHECKOUT", help="whose daemon")
    add("--before", type=Path, metavar="CHECKOUT", help="an older one, to compare with")
    add("--after", type=Path, metavar="CHECKOUT", help="the same as --daemon")
    add(
        "--running",
        type=Path,
        metavar="DIRECTORY",
        help="sockets of a service that runs",
    )
    add(
        "--restart",
        dest="unit_name",
        metavar="UNIT",
        help="restart that service with each attack's configuration, which replaces its own",
    )
    add("--group", metavar="NAME", help="which may use those")
    add("--unit", action="store_true", help="the installed service, in a container")
    add(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="attacks, or kinds of them",
    )
    add("--seconds", type=float, default=10.0, help="that a load lasts, at least")
    add("--scale", type=float, default=1.0, help="share of connections and samples")
    add("--json", type=Path, default=REPORT, metavar="FILE", help="of the report")
    arguments = parser.parse_args()
    try:
        chosen(arguments.only)
    except KeyError as error:
        parser.error(f"no such attack: {error}")
    return arguments


def service(arguments: argparse.Namespace) -> Running | None:
    """Give the service that runs already; ``None`` if daemons are started instead."""
    directory, unit = arguments.running, arguments.unit_name
    if directory is None:
        return None
    return Service(directory, unit, CONFIG_FILE) if unit else Running(directory)


def daemons(arguments: argparse.Namespace) -> Mapping[str, Path]:
    """Give the checkouts, by the names they have in the report."""
    if arguments.running is not None:
        return {"unit": ROOT}
    after = arguments.after or arguments.daemon
    before = {} if arguments.before is None else {"before": arguments.before}
    return {name: path.resolve() for name, path in ({**before, "after": after}).items()}


def enter(daemon: str, outcome: Outcome, path: Path) -> None:
    """Put an outcome into the report."""
    report, facts = read_report(path), machine()
    report.machine = {name: facts[name] for name in MACHINE if name in facts}
    report.add(daemon, outcome)
    write_report(report, path)


def words(outcome: Outcome) -> str:
    """Tell an outcome in some lines."""
    lines = [f"{outcome.attack}: {outcome.verdict.upper()} in {outcome.seconds} s"]
    lines += [outcome.reason] * bool(outcome.reason)
    lines += [
        f"{when}: p50 {each.p50_ms}, p99 {each.p99_ms}, longest {each.max_ms} ms, {each.codes}"
        for when, each in outcome.latencies.items()
    ]
    lines += [f"attacker: {outcome.codes}"] * bool(outcome.codes)
    lines += [f"slowest: {each}" for each in outcome.slowest[:2]]
    lines += [f"{when}: {each}" for when, each in outcome.holdings.items()]
    lines += [
        f"NOT HELD {each.name}: {each.detail}"
        for each in outcome.checks
        if not each.is_held
    ]
    return "\n    ".join([*lines, *outcome.notes])


def say(text: str) -> None:
    """Tell the person who waits."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
