"""inferd model prune: remove files that no model uses."""

import argparse
import sys

from inferd.cli.console import EXIT_OK, CommandError, stdin
from inferd.cli.models.opening import opened_store, size
from inferd.models.store.store import ModelStore, Unused
from inferd.terminal import print_line, print_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    parser.add_argument(
        "--dry-run", action="store_true", help="list, and remove nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    """List what no model uses, ask, and remove it."""
    with opened_store() as store:
        unused = store.unused()
        _print(store, unused)
        if arguments.dry_run or not unused:
            return EXIT_OK
        if not arguments.yes and not _agreed():
            print_stderr("nothing is removed")
            return EXIT_OK
        freed = sum(file.n_bytes for file in store.prune())
        print_stderr(f"{size(freed)} freed")
    return EXIT_OK


def _print(store: ModelStore, unused: list[Unused]) -> None:
    for file in unused:
        path = store.directory.path_of(file.part, file.name)
        print_line(f"{path}  {size(file.n_bytes)}")
    total = sum(file.n_bytes for file in unused)
    print_stderr(f"{len(unused)} files that no model uses, {size(total)} to free")


def _agreed() -> bool:
    """Ask on the terminal.

    Raises:
        CommandError: there is none to ask on.
    """
    if not stdin().isatty():
        raise CommandError("stdin is not a terminal", "inferd model prune --yes")
    print_stderr("remove them? [y/N]")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
