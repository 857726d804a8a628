"""inferd model import: bring files into the store."""

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from inferd.cli.console import EXIT_NOT_READY, EXIT_OK, CommandError
from inferd.cli.models.opening import (
    FileProgress,
    opened_store,
    size,
)
from inferd.models.bring import Brought, Means, bring_file, now
from inferd.models.embedded import EMBEDDED_PREFIX
from inferd.models.facts.read import read_model
from inferd.models.file_error import ModelFileError
from inferd.models.found.catalogue import PROGRAMS, find_models
from inferd.models.found.model import (
    FileGroup,
    FoundFile,
    FoundModel,
    TooManyFilesError,
    fitting_name,
    group_files,
)
from inferd.models.pull.errors import SPACE, PullError
from inferd.models.pull.pull import check_name_is_free
from inferd.models.store.blobs import StoreFullError
from inferd.models.store.directory import StoreError
from inferd.models.store.manifest import Manifest
from inferd.models.store.names import InvalidNameError, check_name
from inferd.models.store.store import ModelStore
from inferd.terminal import print_line, print_stderr

_FILE: Final = "file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "paths",
        metavar="FILE",
        nargs="*",
        type=Path,
        help="a GGUF file or a model of whisper.cpp; of a split file, any part",
    )
    parser.add_argument("--name", metavar="NAME", help="the model's name in the store")
    parser.add_argument(
        "--projector",
        metavar="FILE",
        type=Path,
        help="the file that turns images or audio into input of the model",
    )
    parser.add_argument(
        "--from",
        dest="program",
        choices=tuple(PROGRAMS),
        help="take what this program has, instead of files",
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="with --from: this model alone; may be repeated",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list what would be brought"
    )
    parser.epilog = (
        "Files are linked where that is safe, so that they take no space, and else "
        "copied. The programs they come from are not changed."
    )


def run(arguments: argparse.Namespace) -> int:
    """Bring models into the store; exit 1 if one could not be brought."""
    models = _wanted(arguments)
    if arguments.dry_run:
        for model in models:
            state = f"  cannot be brought: {model.missing}" if model.missing else ""
            print_line(f"{model.name}  {model.source}{state}")
        return EXIT_OK
    with opened_store(makes=True) as store:
        results = [_import(store, model) for model in models]
    return EXIT_OK if all(results) else EXIT_NOT_READY


def _wanted(arguments: argparse.Namespace) -> list[FoundModel]:
    """Find the models that the arguments name.

    Raises:
        CommandError: there are none, or the arguments contradict each other.
    """
    if arguments.program is None and not arguments.paths:
        raise CommandError("one of FILE and --from PROGRAM is needed")
    if arguments.program is not None and arguments.paths:
        raise CommandError(
            "FILE goes without --from",
            f"for a model of {arguments.program}: inferd model import --from "
            f"{arguments.program} --only {arguments.paths[0]}",
        )
    if arguments.program is None:
        return [_from_paths(arguments)]
    if arguments.name or arguments.projector:
        raise CommandError("--name and --projector go with FILE, not with --from")
    try:
        models = [*find_models(arguments.program, os.environ, Path.home())]
    except TooManyFilesError as error:
        raise CommandError(str(error)) from error
    except PermissionError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    chosen = [
        model
        for model in models
        if not arguments.only or any(map(model.has_name, arguments.only))
    ]
    if not chosen:
        names = ", ".join(model.name for model in models)
        raise CommandError(
            f"{arguments.program} has no such model; it has: {names}"
            if models
            else f"no models of {arguments.program} were found"
        )
    return chosen


def _from_paths(arguments: argparse.Namespace) -> FoundModel:
    paths: list[Path] = arguments.paths
    if len(paths) > 1:
        raise CommandError("one model at a time; of a split file, any part will do")
    path = paths[0].absolute()
    if not path.is_file():
        raise CommandError(f"{path} is not a file")
    group = _group_of(path)
    files = [file for file in group.files if file.role == "model"]
    if arguments.projector:
        projector = arguments.projector.absolute()
        files.append(FoundFile(projector, projector.name, "projector"))
    name = arguments.name or fitting_name(group.stem)
    try:
        check_name(name)
    except InvalidNameError as error:
        raise CommandError(str(error)) from error
    if reserved := _reserved(name):
        raise CommandError(reserved, "inferd model import FILE --name NAME")
    return FoundModel(
        program=_FILE,
        name=name,
        source=str(path),
        revision="",
        files=tuple(files),
        missing=group.missing,
    )


def _group_of(path: Path) -> FileGroup:
    """Return the file, or all parts of the split file that it is a part of."""
    for group in group_files(sorted(path.parent.iterdir())):
        if any(file.path == path for file in group.files if file.role == "model"):
            return group
    return FileGroup(path.stem, (FoundFile(path, path.name),), "")


def _reserved(name: str) -> str:
    """Describe why no file may have a name; an empty text if it may."""
    if not name.startswith(EMBEDDED_PREFIX):
        return ""
    return f"{name}: names that begin with {EMBEDDED_PREFIX} are those of the embedded models"


def _import(store: ModelStore, model: FoundModel) -> bool:
    if reserved := _reserved(model.name):
        print_stderr(f"error: {reserved}")
        return False
    if fault := model.missing or _fault(model):
        print_stderr(f"error: {model.name}: {fault}")
        return False
    try:
        brought = _publish(store, model)
    except PullError as error:
        print_stderr(f"error: {model.name}: {error}")
        is_named = model.program == _FILE  # else --name does not go with it
        first = f"first: inferd model remove {model.name}"
        print_stderr(f"hint: {error.hint if is_named else first}")
        return False
    except (StoreError, OSError) as error:
        print_stderr(f"error: {model.name}: {error}")
        if isinstance(error, StoreFullError):
            print_stderr(f"hint: {SPACE}")
        return False
    how = ", ".join(dict.fromkeys(each.means for each in brought))
    total = sum(each.file.n_bytes for each in brought)
    print_stderr(f"{model.name}: {size(total)}, {how}")
    if Means.COPIED in {each.means for each in brought}:
        print_stderr(
            "note: copied, as the file is another user's or on another file system, "
            "or others may write to it"
        )
    return True


def _fault(model: FoundModel) -> str:
    """Describe why no worker would load a model of one file; empty if its header is sound.

    Files of which not all was downloaded are found by it.
    """
    paths = [file.path for file in model.files if file.role == "model"]
    if len(paths) > 1:
        return ""
    try:
        read_model(paths)
    except ModelFileError as error:
        return str(error)
    return ""


def _publish(store: ModelStore, model: FoundModel) -> list[Brought]:
    """Bring the files of a model, none of which is removed as unused before it is added.

    Raises:
        PullError: the name is that of another source's model, with other files.
        StoreError: a file cannot be brought.
    """
    with ExitStack() as held:
        brought = [*_bring_files(store, model, held)]
        digests = {each.file.sha256 for each in brought}
        check_name_is_free(store, model.name, model.source, digests)
        store.publish(
            Manifest(
                name=model.name,
                kind=brought[0].kind,
                source=model.source,
                revision=model.revision,
                license=model.license,
                created=now(),
                files=tuple(each.file for each in brought),
            )
        )
    return brought


def _bring_files(
    store: ModelStore, model: FoundModel, held: ExitStack
) -> Iterator[Brought]:
    for file in model.files:
        progress = FileProgress("reading", file.name)
        try:
            brought = bring_file(store.directory, file, progress.update)
        finally:
            progress.clear()
        held.callback(os.close, store.hold_blob(brought.file.sha256))
        yield brought
