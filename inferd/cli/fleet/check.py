"""inferd fleet check: list what is wrong with the fleet."""

import argparse

from inferd.cli.console import EXIT_NOT_READY, EXIT_OK
from inferd.cli.fleet import ask_members, fleet_of
from inferd.terminal import print_line, print_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = (
        "Each member has to answer, to be ready, to take the token, and to have the models "
        "and the version of the others."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each fault; exit 1 if there is one."""
    with fleet_of(arguments) as fleet:
        states = ask_members(fleet)
    from inferd.fleet.probe import differences  # noqa: PLC0415  # its package is there

    faults = [
        f"{each.name}: {each.condition.replace('_', ' ')}, {each.reason}"
        for each in states
        if each.condition != "ready"
    ]
    if not fleet.token:
        faults.append(
            "no token_file: smg cannot list the models of bridges that need tokens"
        )
    faults += differences(states)
    for fault in faults:
        print_stderr(f"error: {fault}")
    if not faults:
        print_line(f"{fleet.path}: ok, {len(states)} members")
    return EXIT_NOT_READY if faults else EXIT_OK
