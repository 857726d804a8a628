"""inferd fleet resume: give a member that was drained requests again."""

import argparse

from inferd.cli.console import EXIT_OK, CommandError
from inferd.cli.fleet import fleet_of
from inferd.fleet.drained import changing_drained
from inferd.terminal import print_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("member", metavar="MEMBER", help="its name")


def run(arguments: argparse.Namespace) -> int:
    """Take it out of the drained ones."""
    with fleet_of(arguments) as fleet, changing_drained(fleet) as drained:
        if arguments.member not in drained:
            raise CommandError(
                f"{arguments.member} is not drained", hint="inferd fleet status"
            )
        drained.discard(arguments.member)
    print_stderr(f"{arguments.member} gets requests again")
    return EXIT_OK
