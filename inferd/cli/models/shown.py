"""The models that ``inferd model show`` can be asked for, wherever they are."""

import os
from pathlib import Path

from msgspec import Struct

from inferd.cli.console import CommandError
from inferd.cli.models.opening import opened_store, store_with
from inferd.config.find_model import is_path, pull_command
from inferd.models.embedded import UnknownModelError, embedded_model
from inferd.models.file_error import ModelFileError
from inferd.models.found.catalogue import find_models
from inferd.models.found.model import TooManyFilesError
from inferd.models.gguf_header.parts import parts_beside
from inferd.models.store.directory import BLOBS
from inferd.models.store.manifest import Role
from inferd.paths import model_stores


class ShownFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of a model."""

    name: str
    path: str
    n_bytes: int
    sha256: str | None = None
    """As the store, the program or the list of embedded models has it."""
    role: Role = "model"


class ShownModel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model, and what is known of it besides its headers."""

    name: str
    """As it was asked for."""
    reference: str
    """For ``model`` in a configuration; empty if there is none for it."""
    source: str
    revision: str = ""
    license: str = ""
    """As its source states it; empty if that is not known."""
    created: str = ""
    """When it came into the store; empty elsewhere."""
    files: tuple[ShownFile, ...]

    def paths(self, role: Role) -> list[Path]:
        """List the files of a role."""
        return [Path(file.path) for file in self.files if file.role == role]


def model_to_show(reference: str, program: str | None) -> ShownModel:
    """Find a model.

    Args:
        reference: as ``model`` in a configuration; with a program, its name for a model as
            ``inferd model import --dry-run`` lists it.
        program: whose store is looked at, in place of ours.

    Raises:
        CommandError: there is none, or its files are missing.
    """
    if program is not None:
        return _of_program(reference, program)
    try:
        is_embedded = embedded_model(reference) is not None
    except UnknownModelError as error:
        raise CommandError(str(error)) from error
    if is_path(reference) and not is_embedded:
        return _of_path(reference)
    try:
        return _of_store(reference)
    except CommandError as error:
        if is_embedded:
            hint = pull_command(reference, model_stores())
            raise CommandError(str(error), hint) from error
        raise


def _of_path(reference: str) -> ShownModel:
    try:
        path = Path(reference).expanduser().absolute()
    except RuntimeError as error:
        raise CommandError(f"{reference}: no such home directory") from error
    try:
        paths = [path, *parts_beside(path)]
    except ModelFileError as error:
        raise CommandError(f"{path}: {error}") from error
    for each in paths:
        if not each.is_file():
            raise CommandError(f"{each} is not a file")
    return ShownModel(
        name=path.name,
        reference=str(path),
        source=str(path),
        files=tuple(map(_file, paths)),
    )


def _of_store(name: str) -> ShownModel:
    with opened_store(store_with(name)) as store:
        manifest = store.model(name)
        files = tuple(
            ShownFile(
                name=file.name,
                path=str(store.directory.path_of(BLOBS, file.sha256)),
                n_bytes=file.n_bytes,
                sha256=file.sha256,
                role=file.role,
            )
            for file in manifest.files
        )
    return ShownModel(
        name=name,
        reference=name,
        source=manifest.source,
        revision=manifest.revision,
        license=manifest.license,
        created=manifest.created,
        files=files,
    )


def _of_program(name: str, program: str) -> ShownModel:
    names: list[str] = []
    try:
        for model in find_models(program, os.environ, Path.home()):
            names.append(model.name)
            if not model.has_name(name):
                continue
            if model.missing:
                raise CommandError(f"{name} of {program}: {model.missing}")
            files = tuple(
                _file(each.path, name=each.name, sha256=each.sha256, role=each.role)
                for each in model.files
            )
            return ShownModel(
                name=model.name,
                reference=next(each.path for each in files if each.role == "model"),
                source=model.source,
                revision=model.revision,
                license=model.license,
                files=files,
            )
    except TooManyFilesError as error:
        raise CommandError(str(error)) from error
    except PermissionError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    known = f"; it has: {', '.join(names)}" if names else ""
    raise CommandError(
        f"{program} has no model {name}{known}",
        f"inferd model import --from {program} --dry-run",
    )


def _file(
    path: Path, *, name: str = "", sha256: str | None = None, role: Role = "model"
) -> ShownFile:
    return ShownFile(
        name=name or path.name,
        path=str(path),
        n_bytes=path.stat().st_size,
        sha256=sha256,
        role=role,
    )
