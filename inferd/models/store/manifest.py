"""The manifest of a model: what it is made of, and where it came from."""

import re
from typing import Annotated, Final, Literal

import msgspec

from inferd.limits.models import (
    FILE_NAME_MAX_CHARS,
    MANIFEST_MAX_BYTES,
    MODEL_MAX_FILES,
    MODEL_NAME_MAX_CHARS,
    MODEL_TEXT_MAX_CHARS,
)
from inferd.models.store.names import InvalidNameError, check_name

FORMAT: Final = 1
"""Version of the manifests that this version writes, and the only one that it reads."""

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, msgspec.Meta(max_length=MODEL_TEXT_MAX_CHARS)]
Role = Literal["model", "projector"]
Kind = Literal["llamacpp", "whispercpp"]

_PRINTABLE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f/]+")


class ManifestError(Exception):
    """A manifest cannot be used; the message is one line, without its path."""


class StoredFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of a model."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=FILE_NAME_MAX_CHARS)]
    """As its source names it, without directories."""
    sha256: Sha256
    n_bytes: Annotated[int, msgspec.Meta(ge=1)]
    role: Role = "model"
    """Files of one role are the parts of a split file, in order."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named model."""

    format: int = FORMAT
    name: Annotated[str, msgspec.Meta(max_length=MODEL_NAME_MAX_CHARS)]
    kind: Kind = "llamacpp"
    """Kind of the backend that loads it."""
    source: Text
    """What it was pulled or imported from, as ``pull`` and ``import`` take it."""
    revision: Text = ""
    """Of the source: a commit, a version; empty where it has none."""
    license: Text = ""
    """Empty if the source does not say."""
    created: Text = ""
    """UTC, RFC 3339."""
    files: Annotated[
        tuple[StoredFile, ...], msgspec.Meta(min_length=1, max_length=MODEL_MAX_FILES)
    ]

    @property
    def n_bytes(self) -> int:
        """Bytes of all files."""
        return sum({file.sha256: file.n_bytes for file in self.files}.values())

    def files_of(self, role: Role) -> tuple[StoredFile, ...]:
        """Return the files of a role: none, one, or the parts of a split file."""
        return tuple(file for file in self.files if file.role == role)


class _Version(msgspec.Struct):
    """The only field that manifests of all versions share."""

    format: int


def is_file_name(name: str) -> bool:
    """Tell whether a manifest may have a file of this name."""
    is_printable = _PRINTABLE.fullmatch(name) is not None
    return is_printable and len(name) <= FILE_NAME_MAX_CHARS and name not in {".", ".."}


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode a manifest, for people as well.

    Raises:
        ManifestError: this version would not read it.
    """
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    decode_manifest(data, manifest.name)
    return data


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Decode the manifest of the model of a name.

    Raises:
        ManifestError: it is of another version, of another model, or invalid.
    """
    if len(data) > MANIFEST_MAX_BYTES:
        raise ManifestError(f"it has over {MANIFEST_MAX_BYTES} bytes")
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version != FORMAT:
            raise ManifestError(
                f"it has format {version}, and this version reads format {FORMAT}"
            )
        manifest = msgspec.json.decode(data, type=Manifest)
        check_name(manifest.name)
    except (msgspec.MsgspecError, InvalidNameError, UnicodeDecodeError) as error:
        raise ManifestError(f"it is not valid: {error}") from error
    if manifest.name != name:
        raise ManifestError(f"it is that of {manifest.name}")
    for file in manifest.files:
        if not is_file_name(file.name):
            raise ManifestError(f"{file.name!r} is no name of a file")
    if not manifest.files_of("model"):
        raise ManifestError("none of its files is a model")
    return manifest
