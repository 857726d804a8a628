"""``inferd fleet``: one module per command, and the option that all of them have."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inferd.cli.console import CommandError
from inferd.fleet.drained import drained_names
from inferd.fleet.file import Fleet, FleetError, read_fleet
from inferd.installation import command_to_add

if TYPE_CHECKING:
    from inferd.fleet.probe import MemberState

DEFAULT: Final = Path("/etc/inferd/fleet.toml")


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands."""
    parser.add_argument(
        "--fleet",
        type=Path,
        metavar="FILE",
        default=DEFAULT,
        help=f"with the members, in TOML; by default {DEFAULT}",
    )


@contextmanager
def fleet_of(arguments: argparse.Namespace) -> Iterator[Fleet]:
    """Give the fleet that the arguments name; what fails inside ends the command.

    Raises:
        CommandError: it cannot be read, or its files cannot be written.
    """
    try:
        yield read_fleet(arguments.fleet)
    except FleetError as error:
        raise CommandError(str(error), hint="docs/fleet.md has an example") from error


def ask_members(fleet: Fleet) -> "Sequence[MemberState]":
    """Ask all members how they are.

    Raises:
        CommandError: the package for that is not installed.
    """
    try:
        import trio  # noqa: PLC0415  # slow

        from inferd.fleet.probe import probe_fleet  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise CommandError(
            f"inferd fleet needs the package {error.name}",
            command_to_add("fleet"),
        ) from error
    return trio.run(probe_fleet, fleet, drained_names(fleet))
