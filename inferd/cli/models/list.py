"""inferd model list: the models of the store, and those that a running daemon serves."""

import argparse

import msgspec

from inferd.cli.connect import add_socket_argument
from inferd.cli.console import EXIT_NOT_READY, EXIT_OK
from inferd.cli.models.opening import opened_store, size
from inferd.cli.models.served import ServedModel, served_models
from inferd.models.store.manifest import Manifest
from inferd.models.store.store import ModelStore
from inferd.paths import models_directory
from inferd.terminal import print_json, print_line, print_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--json", action="store_true", help="print a JSON line for each"
    )
    add_socket_argument(parser)
    parser.epilog = (
        "The store's models come first. The lines after them are of a running daemon's "
        'backends ("served", with --json the key "backend"): their names are those that '
        "--model and requests take."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each model; exit 1 if a manifest or a file cannot be used."""
    served = served_models(arguments.directory)
    all_usable = True
    if served is None or models_directory().exists():
        with opened_store() as store:
            all_usable = _print_store(store, as_json=arguments.json)
    for backend in served or []:
        _print_served(backend, as_json=arguments.json)
    return EXIT_OK if all_usable else EXIT_NOT_READY


def _print_store(store: ModelStore, *, as_json: bool) -> bool:
    """Print the models of the store; return whether all can be used."""
    all_usable = True
    for model in store.models():
        if not isinstance(model, Manifest):
            print_stderr(f"error: {model}")
            all_usable = False
            continue
        is_whole = all(map(store.has_blob, model.files))
        all_usable = all_usable and is_whole
        if as_json:
            entry = msgspec.to_builtins(model) | {"complete": is_whole}
            print_json(msgspec.json.encode(entry))
        else:
            state = "" if is_whole else "  files are missing"
            print_line(f"{model.name}  {size(model.n_bytes)}  {model.source}{state}")
    return all_usable


def _print_served(backend: ServedModel, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.json.encode(backend))
    else:
        print_line(str(backend))
