"""inferd model remove: remove a model."""

import argparse

from inferd.cli.console import EXIT_OK
from inferd.cli.models.opening import add_store_argument, opened_store, size
from inferd.terminal import print_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_store_argument(parser)
    parser.add_argument("names", metavar="NAME", nargs="+", help="a model's name")


def run(arguments: argparse.Namespace) -> int:
    """Remove models; say how much space that freed."""
    with opened_store(arguments) as store:
        for name in arguments.names:
            removed = store.remove(name)
            freed = sum(file.n_bytes for file in removed)
            print_stderr(f"{name} is removed; {size(freed)} freed")
    return EXIT_OK
