"""Models in Ollama's store."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from inferd.limits.models import MANIFEST_MAX_BYTES
from inferd.models.found.model import FoundFile, FoundModel, fitting_name, list_files
from inferd.models.store.manifest import Role

PROGRAM: Final = "ollama"
_DEFAULT_NAMESPACE: Final = "library"
_ROLES: Final[dict[str, Role]] = {
    "application/vnd.ollama.image.model": "model",
    "application/vnd.ollama.image.projector": "projector",
}
_DEPTH: Final = 4
"""Names of a manifest below ``manifests``: host, namespace, model, tag."""


class _Layer(msgspec.Struct, rename="camel"):
    media_type: str
    digest: str
    size: int


class _Manifest(msgspec.Struct):
    layers: list[_Layer]


def directories(environ: Mapping[str, str], home: Path) -> list[Path]:
    """List where Ollama may keep its models: its own setting, the user's, the service's."""
    given = environ.get("OLLAMA_MODELS")
    service = Path("/usr/share/ollama/.ollama/models")
    return [Path(given)] if given else [home / ".ollama" / "models", service]


def find(directory: Path) -> Iterator[FoundModel]:
    """Find the models of a store.

    Raises:
        TooManyFilesError: there are more files than any cache has.
        OSError: a directory cannot be read.
    """
    manifests = directory / "manifests"
    for path in list_files(manifests):
        names = path.relative_to(manifests).parts
        if len(names) == _DEPTH:
            yield _found(directory, path, *names[1:])


def _found(directory: Path, path: Path, space: str, model: str, tag: str) -> FoundModel:
    parts = (model,) if space == _DEFAULT_NAMESPACE else (space, model)
    files, missing = _files(directory, path, f"{model}-{tag}")
    return FoundModel(
        program=PROGRAM,
        name=fitting_name(*parts, variant=tag),
        source=f"ollama:{'/'.join(parts)}:{tag}",
        revision="",
        files=files,
        missing=missing,
    )


def _files(directory: Path, path: Path, stem: str) -> tuple[tuple[FoundFile, ...], str]:
    """Return a manifest's files, and why they cannot be imported."""
    try:
        with path.open("rb") as file:
            data = file.read(MANIFEST_MAX_BYTES)
        layers = msgspec.json.decode(data, type=_Manifest).layers
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return (), "its manifest is not one of Ollama's"
    files: list[FoundFile] = []
    for layer in layers:
        if (role := _ROLES.get(layer.media_type)) is None:
            continue
        algorithm, _, digest = layer.digest.partition(":")
        blob = directory / "blobs" / f"{algorithm}-{digest}"
        if not (algorithm == "sha256" and len(digest) == 64 and digest.isalnum()):  # noqa: PLR2004  # hex digits of a SHA-256
            return (), "its manifest has a digest that is no SHA-256"
        if not blob.is_file() or blob.stat().st_size != layer.size:
            return (), f"{blob.name} is missing or not complete"
        files.append(FoundFile(blob, f"{stem}.{role}.gguf", role, digest))
    return tuple(files), "" if files else "it has no model file"
