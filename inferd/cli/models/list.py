"""inferd model list: the models of the store."""

import argparse

import msgspec

from inferd.cli.console import EXIT_NOT_READY, EXIT_OK
from inferd.cli.models.opening import opened_store, size
from inferd.models.store.manifest import Manifest
from inferd.terminal import print_json, print_line, print_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--json", action="store_true", help="print a JSON line for each"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each model; exit 1 if a manifest or a file cannot be used."""
    all_usable = True
    with opened_store() as store:
        for model in store.models():
            if not isinstance(model, Manifest):
                print_stderr(f"error: {model}")
                all_usable = False
                continue
            is_whole = all(map(store.has_blob, model.files))
            all_usable = all_usable and is_whole
            if arguments.json:
                entry = msgspec.to_builtins(model) | {"complete": is_whole}
                print_json(msgspec.json.encode(entry))
            else:
                state = "" if is_whole else "  files are missing"
                print_line(
                    f"{model.name}  {size(model.n_bytes)}  {model.source}{state}"
                )
    return EXIT_OK if all_usable else EXIT_NOT_READY
