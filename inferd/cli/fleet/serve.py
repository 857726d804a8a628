"""inferd fleet serve: run smg in front of the members."""

import argparse
import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import Final

from inferd.cli.console import CommandError
from inferd.cli.fleet import fleet_of
from inferd.fleet.drained import changing_drained
from inferd.fleet.entry import smg_arguments
from inferd.installation import command_to_add
from inferd.terminal import print_stderr

CONTROL_KEY_BYTES: Final = 32
"""Random bytes of the key of smg's control plane: nobody guesses them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "options", nargs="*", metavar="-- OPTION", help="more options of smg"
    )
    parser.epilog = (
        "The process becomes smg's: it ends with SIGTERM, after its requests."
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the list of members and become smg.

    Raises:
        CommandError: smg is not installed.
    """
    with fleet_of(arguments) as fleet:
        program = _smg()
        with changing_drained(fleet):
            pass
    key = secrets.token_hex(CONTROL_KEY_BYTES)
    words = [*smg_arguments(fleet, key), *arguments.options]
    print_stderr(f"{len(fleet.members)} members at {fleet.settings.listen}")
    os.execv(program, [program, *words])  # noqa: S606  # no shell is wanted


def _smg() -> str:
    beside = Path(sys.executable).with_name("smg")
    found = str(beside) if beside.exists() else shutil.which("smg")
    if found is None:
        raise CommandError(
            "smg is not installed",
            command_to_add("fleet"),
        )
    return found
