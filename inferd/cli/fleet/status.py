"""inferd fleet status: show how each member is."""

import argparse

import msgspec

from inferd.cli.console import EXIT_NOT_READY, EXIT_OK
from inferd.cli.fleet import ask_members, fleet_of
from inferd.terminal import print_json, print_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each member; exit 0 only if all that take requests are ready."""
    with fleet_of(arguments) as fleet:
        states = ask_members(fleet)
    if arguments.json:
        print_json(msgspec.json.encode({"members": states}))
    for state in () if arguments.json else states:
        parts = [f"{state.name}: {state.condition.replace('_', ' ')}"]
        parts += ["drained"] if state.drained else []
        parts += [f"{state.running} running"] if state.running is not None else []
        parts += [f"models {' '.join(state.models)}"] if state.models else []
        parts += [f"version {state.version}"] if state.version else []
        parts += [state.reason] if state.reason else []
        print_line(", ".join([*parts, state.url]))
    are_ready = all(each.condition == "ready" for each in states if not each.drained)
    return EXIT_OK if are_ready and states else EXIT_NOT_READY
