"""inferd config init: write a first configuration for this machine."""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from inferd.cli.console import EXIT_OK, CommandError
from inferd.config.faults import examine_config
from inferd.config.find_model import located_files
from inferd.config.first_config import KnownModel, MachineFacts, first_config
from inferd.config.kinds.llamacpp import AUTO
from inferd.config.load import socket_directory
from inferd.config.settings import Config
from inferd.dialects.registry import has_format
from inferd.limits.models import INIT_MAX_MODELS
from inferd.memory.available import available_bytes
from inferd.models.facts.read import read_model
from inferd.models.file_error import ModelFileError
from inferd.models.store.directory import StoreError
from inferd.models.store.manifest import Manifest, ManifestError
from inferd.models.store.store import ModelNotInStoreError, ModelStore
from inferd.models.store.stores import Stores, opened_stores
from inferd.paths import config_files, model_stores, models_directory
from inferd.server.capacity import max_active_requests
from inferd.terminal import print_stderr, print_text

_STDOUT: Final = Path("-")
_MODE: Final = 0o644


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write, or - for stdout; by default the one of this user that "
        "inferd serve reads first",
    )
    parser.epilog = (
        "The models are those of the store. A file that exists is never overwritten."
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the configuration; exit 2 if there is a file, or no model."""
    path = arguments.output or config_files()[0]
    if path != _STDOUT and os.path.lexists(path):
        raise _exists(path)
    text, faults = _text()
    for fault in faults:
        print_stderr(f"note: a model store is left out: {fault}")
    if path == _STDOUT:
        print_text(text)
        return EXIT_OK
    _write(path, text)
    print_stderr(f"{path} is written")
    print_stderr("")
    print_stderr(f"hint: inferd config check --config {path}")
    return EXIT_OK


def _text() -> tuple[str, Sequence[str]]:
    """Write the text, and check that it is a configuration; return why stores are left out."""
    config = Config()
    with opened_stores(model_stores()) as stores:
        models = [*_stored_models(stores)]
        faults = stores.faults
    if all(model.fault for model in models):
        none = f"none in the store at {models_directory()}"
        raise CommandError(
            f"there is no model to serve: {'; '.join([none, *faults])}",
            "inferd model import FILE, or inferd model pull embedded:chat",
        )
    text = first_config(
        MachineFacts(
            n_cores=len(os.sched_getaffinity(0)),
            max_active=max_active_requests(config),
            available=available_bytes(),
            socket_directory=str(socket_directory(config)),
            store=str(models_directory()),
            models=models,
            store_faults=faults,
        )
    )
    if refused := examine_config(text).faults:
        raise CommandError(f"the configuration would be refused: {refused[0]}")
    return text, faults


def _stored_models(stores: Stores) -> Iterator[KnownModel]:
    """Yield the models of the stores, ``INIT_MAX_MODELS`` at most."""
    for name, store in islice(stores.names().items(), INIT_MAX_MODELS):
        with suppress(ModelNotInStoreError, ManifestError):  # removed, or not usable
            yield _stored(store, store.model(name))


def _stored(store: ModelStore, manifest: Manifest) -> KnownModel:
    try:
        located = located_files(store, manifest)
    except StoreError as error:
        return KnownModel(manifest.name, manifest.kind, "generate", 0, str(error))
    files = (located.model, *located.parts)
    return _known(manifest.name, *(Path(file.path) for file in files))


def _known(reference: str, *paths: Path) -> KnownModel:
    """Read what a model is for."""
    try:
        facts, template = read_model(paths)
    except ModelFileError as error:
        return KnownModel(reference, "llamacpp", "generate", 0, str(error))
    fault = ""
    if facts.use == "generate" and not has_format(template):
        fault = "it has no chat template; chat_template can name its family"
    if reference == AUTO:
        fault = "this name is a word of the configuration"
    return KnownModel(reference, facts.kind, facts.use, facts.n_bytes, fault)


def _write(path: Path, text: str) -> None:
    """Write a file that does not exist, whole or not at all.

    Raises:
        CommandError: it exists by now, or cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{path.parent}: {error.strerror}") from error
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            path.hardlink_to(partial)
        finally:
            with suppress(OSError):
                partial.unlink()
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error


def _exists(path: Path) -> CommandError:
    return CommandError(
        f"{path} exists, and is not overwritten", "inferd config init --output FILE"
    )
