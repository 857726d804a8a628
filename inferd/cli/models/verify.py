"""inferd model verify: compare files with their SHA-256."""

import argparse

from inferd.cli.console import EXIT_NOT_READY, EXIT_OK
from inferd.cli.models.opening import FileProgress, opened_store
from inferd.models.store.manifest import ManifestError
from inferd.models.store.store import ModelStore
from inferd.terminal import print_line, print_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="a model; default: all"
    )
    parser.epilog = "A file that differs is moved to the quarantine of the store."


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each model; exit 1 if a file of one differs or is missing."""
    with opened_store() as store:
        names = arguments.names or store.names()
        results = [_verify(store, name) for name in names]
    return EXIT_OK if all(results) else EXIT_NOT_READY


def _verify(store: ModelStore, name: str) -> bool:
    try:
        manifest = store.model(name)
    except ManifestError as error:  # it says nothing about the models after it
        print_stderr(f"error: {error}")
        return False
    progress = FileProgress("reading", manifest.name)
    largest = max(file.n_bytes for file in manifest.files)
    damages = store.verify(manifest, lambda n_done: progress.update(n_done, largest))
    progress.clear()
    print_line(f"{manifest.name}: {'damaged' if damages else 'ok'}")
    for damage in damages:
        print_line(f"  {damage.file.name}: {damage.reason}")
    return not damages
