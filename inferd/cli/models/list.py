"""inferd model list: the models of the store, and those that a running daemon serves."""

import argparse
from pathlib import Path

import msgspec

from inferd.cli.connect import add_socket_argument
from inferd.cli.console import EXIT_NOT_READY, EXIT_OK
from inferd.cli.models.opening import opened_store, size
from inferd.cli.models.remote import add_at_arguments, list_at
from inferd.cli.models.served import ServedModel, served_models
from inferd.models.store.manifest import Manifest
from inferd.models.store.store import ModelStore
from inferd.paths import model_stores
from inferd.terminal import print_json, print_line, print_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--json", action="store_true", help="print a JSON line for each"
    )
    add_socket_argument(parser)
    add_at_arguments(parser)
    parser.epilog = (
        "The store's models come first, and then those of the machine's store that it "
        "lacks. The lines after them are of a running daemon's "
        'backends ("served", with --json the key "backend"): their names are those that '
        "--model and requests take."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each model; exit 1 if a manifest or a file cannot be used."""
    if arguments.at is not None:
        for name in list_at(arguments.at, arguments.config):
            _print_remote(name, arguments.at, as_json=arguments.json)
        return EXIT_OK
    served = served_models(arguments.directory)
    all_usable = True
    names: set[str] = set()
    own, *others = model_stores()
    others = [path for path in others if path.exists()]
    if own.exists() or not (served or others):
        with opened_store() as store:
            all_usable = _print_store(store, names, as_json=arguments.json)
    for path in others:
        with opened_store(path) as store:
            is_usable = _print_store(store, names, as_json=arguments.json, place=path)
            all_usable = all_usable and is_usable
    for backend in served or []:
        _print_served(backend, as_json=arguments.json)
    return EXIT_OK if all_usable else EXIT_NOT_READY


def _print_store(
    store: ModelStore, names: set[str], *, as_json: bool, place: Path | None = None
) -> bool:
    """Print the models of a store; return whether all can be used.

    Args:
        store: whose models are printed.
        names: of models of stores before, which count instead; those of this one are added.
        as_json: whether lines are JSON.
        place: of a store that is looked in besides the one that commands change.
    """
    all_usable = True
    for model in store.models():
        if not isinstance(model, Manifest):
            print_stderr(f"error: {model}")
            all_usable = False
            continue
        if model.name in names:
            continue
        names.add(model.name)
        is_whole = all(map(store.has_blob, model.files))
        all_usable = all_usable and is_whole
        if as_json:
            entry = msgspec.to_builtins(model) | {"complete": is_whole}
            stored = {"store": str(place)} if place else {}
            print_json(msgspec.json.encode(entry | stored))
        else:
            state = "" if is_whole else "  files are missing"
            where = f"  in {place}" if place else ""
            print_line(
                f"{model.name}  {size(model.n_bytes)}  {model.source}{where}{state}"
            )
    return all_usable


def _print_remote(name: str, backend: str, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.json.encode({"name": name, "at": backend}))
    else:
        print_line(name)


def _print_served(backend: ServedModel, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.json.encode(backend))
    else:
        print_line(str(backend))
