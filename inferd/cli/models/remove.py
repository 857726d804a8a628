"""inferd model remove: remove a model."""

import argparse

from inferd.cli.console import EXIT_OK
from inferd.cli.models.opening import opened_store, size
from inferd.terminal import print_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("names", metavar="NAME", nargs="+", help="a model's name")


def run(arguments: argparse.Namespace) -> int:
    """Remove models; say how much space that freed."""
    with opened_store() as store:
        for name in arguments.names:
            removed = store.remove(name)
            freed = sum(file.n_bytes for file in removed)
            print_stderr(f"{name} is removed; {size(freed)} freed")
    return EXIT_OK
