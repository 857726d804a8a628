"""inferd fleet write: write what smg and haproxy read."""

import argparse

from inferd.cli.console import EXIT_OK
from inferd.cli.fleet import fleet_of
from inferd.fleet.drained import changing_drained
from inferd.terminal import print_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = (
        "smg reads its list again as soon as it changes; haproxy has to be told: "
        "systemctl reload haproxy."
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the files, and print where."""
    with fleet_of(arguments) as fleet, changing_drained(fleet):
        pass
    settings = fleet.settings
    for name in filter(None, (settings.smg_file, settings.haproxy_file)):
        print_line(str(fleet.place(name)))
    return EXIT_OK
