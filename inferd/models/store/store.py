"""The model store: models by name, what they are made of, and what nothing uses."""

import difflib
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from inferd.limits.models import MANIFEST_MAX_BYTES, STORE_MAX_MODELS
from inferd.models.store.blobs import Progress, hash_file
from inferd.models.store.directory import (
    BLOBS,
    MANIFESTS,
    PARTIAL,
    QUARANTINE,
    StoreDirectory,
    StoreError,
    try_lock,
)
from inferd.models.store.manifest import (
    Manifest,
    ManifestError,
    StoredFile,
    decode_manifest,
    encode_manifest,
)
from inferd.models.store.names import check_name, file_of, name_of
from inferd.models.store.scratch import idle_scratch, remove_idle_scratch, size_of

N_SUGGESTIONS = 5
"""Names that are suggested in place of one that is not there."""


_RECORD = ".json"
"""Ends the name of what a download records beside its partial file."""
SCRATCH = "."
"""Part of a store, as a path in it, that has the directories of commands."""


class ModelNotInStoreError(StoreError):
    """The store has no model of this name; the message has similar names."""


class Unused(NamedTuple):
    """A file of the store that no model uses."""

    part: str
    name: str
    n_bytes: int
    """That removing it frees; 0 if the file has other names elsewhere."""


class Damage(NamedTuple):
    """A file of a model that cannot be used."""

    file: StoredFile
    reason: str


class ModelStore:
    """The models of a store directory.

    Reading takes no lock: manifests are replaced whole, and a blob stays as long as a
    manifest names it. Methods raise ``OSError`` if the file system does.
    """

    def __init__(self, directory: StoreDirectory) -> None:
        self.directory = directory

    # --- reading ------------------------------------------------------------------

    def models(self) -> Iterator[Manifest | ManifestError]:
        """Read the manifests by name, those that cannot be used as errors.

        Raises:
            StoreError: there are over ``STORE_MAX_MODELS``.
        """
        for name in self.names():
            try:
                yield self.model(name)
            except ModelNotInStoreError:
                continue  # removed meanwhile
            except ManifestError as error:
                yield error

    def names(self) -> list[str]:
        """List the models' names.

        Raises:
            StoreError: there are over ``STORE_MAX_MODELS``.
        """
        names = [*filter(None, map(name_of, self.directory.names(MANIFESTS)))]
        if len(names) > STORE_MAX_MODELS:
            raise StoreError(
                f"{self.directory.path} has {len(names)} models; allowed: "
                f"{STORE_MAX_MODELS}"
            )
        return sorted(names)

    def has(self, name: str) -> bool:
        """Tell whether there is a manifest of a name, though it may not be one to use.

        Raises:
            InvalidNameError: it is no name.
        """
        try:
            self.directory.status(MANIFESTS, file_of(check_name(name)))
        except FileNotFoundError:
            return False
        return True

    def model(self, name: str) -> Manifest:
        """Read the manifest of a model.

        Raises:
            InvalidNameError: it is no name.
            ModelNotInStoreError: the store has no such model.
            ManifestError: its manifest cannot be used.
        """
        try:
            descriptor = self.directory.open_file(MANIFESTS, file_of(check_name(name)))
        except FileNotFoundError:
            raise self.unknown(name) from None
        except (StoreError, OSError) as error:  # a directory or a link
            if getattr(error, "errno", errno.ELOOP) != errno.ELOOP:
                raise
            path = self.directory.path_of(MANIFESTS, file_of(name))
            raise ManifestError(f"{path} is not a regular file") from error
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(MANIFEST_MAX_BYTES + 1)
        try:
            return decode_manifest(data, name)
        except ManifestError as error:
            path = self.directory.path_of(MANIFESTS, file_of(name))
            raise ManifestError(f"{path}: {error}") from error

    def unknown(self, name: str) -> ModelNotInStoreError:
        """Make the error for a name that is not there, with similar ones.

        Raises:
            StoreError: there are over ``STORE_MAX_MODELS``.
        """
        names = self.names()
        similar = difflib.get_close_matches(name, names, N_SUGGESTIONS, cutoff=0.4)
        shown = similar or names[:N_SUGGESTIONS]
        known = f"; there are: {', '.join(shown)}" if shown else "; it has no models"
        more = ", …" if len(names) > len(shown) else ""
        return ModelNotInStoreError(
            f"{self.directory.path} has no model {name}{known}{more}"
        )

    def open_blob(self, file: StoredFile) -> int:
        """Open the content of a file; the caller checks its SHA-256 as it reads it.

        Raises:
            StoreError: it is missing, or has another size.
        """
        path = self.directory.path_of(BLOBS, file.sha256)
        try:
            descriptor = self.directory.open_file(BLOBS, file.sha256)
        except FileNotFoundError:
            raise StoreError(f"{path} is missing") from None
        n_bytes = os.fstat(descriptor).st_size
        if n_bytes != file.n_bytes:
            os.close(descriptor)
            raise StoreError(f"{path} has {n_bytes} bytes, not {file.n_bytes}")
        return descriptor

    def has_blob(self, file: StoredFile) -> bool:
        """Tell whether a file's content is there, by its size."""
        try:
            os.close(self.open_blob(file))
        except StoreError:
            return False
        return True

    def hold_blob(self, sha256: str) -> int:
        """Open a file that no model uses yet; it is not removed until it is closed.

        Returns:
            A descriptor, which is the caller's to close once a manifest names the file.

        Raises:
            FileNotFoundError: the store does not have it.
            StoreError: another process is changing the store.
        """
        with self.directory.locked():  # nobody is removing it
            descriptor = self.directory.open_file(BLOBS, sha256)
            with suppress(BlockingIOError):  # its writer holds it
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return descriptor

    # --- changes ------------------------------------------------------------------

    def publish(self, manifest: Manifest) -> None:
        """Add a model whose files are in the store, or replace the one of its name.

        Raises:
            StoreError: a file is missing, or another process is changing the store.
            ManifestError: the manifest is not valid.
        """
        data = encode_manifest(manifest)
        name = file_of(check_name(manifest.name))
        with self.directory.locked():
            for file in manifest.files:
                os.close(self.open_blob(file))
            descriptor = self.directory.open_file(
                PARTIAL, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            )
            with os.fdopen(descriptor, "wb") as written:
                written.write(data)
                written.flush()
                os.fsync(written.fileno())
            self.directory.move(PARTIAL, name, MANIFESTS, name)

    def remove(self, name: str) -> list[Unused]:
        """Remove a model, and its files that no other model uses.

        Returns:
            The files that were removed.

        Raises:
            ModelNotInStoreError: the store has no such model.
            StoreError: another process is changing the store.
        """
        with self.directory.locked():
            try:
                gone = {file.sha256 for file in self.model(name).files}
            except ManifestError:
                gone = set()
            self.directory.remove(MANIFESTS, file_of(name))
            return self._remove(
                unused for unused in self._unused_blobs() if unused.name in gone
            )

    def unused(self) -> list[Unused]:
        """List the files that no model uses, and no command is writing or about to use.

        Raises:
            ManifestError: a manifest cannot be used: what it needs is not known.
        """
        return [
            *self._unused_blobs(),
            *self._idle_partial(),
            *self._listed(QUARANTINE, self.directory.names(QUARANTINE)),
            *(
                Unused(SCRATCH, path.name, size_of(path))
                for path in idle_scratch(self.directory)
            ),
        ]

    def prune(self) -> list[Unused]:
        """Remove what ``unused`` lists; return it.

        Raises:
            ManifestError: a manifest cannot be used: what it needs is not known.
            StoreError: another process is changing the store.
        """
        with self.directory.locked():
            unused = self.unused()
            files = [file for file in unused if file.part != SCRATCH]
            self._remove(iter(files))
        if len(files) < len(unused):
            remove_idle_scratch(self.directory)
        return unused

    def verify(self, manifest: Manifest, progress: Progress) -> list[Damage]:
        """Compare a model's files with their SHA-256.

        A file that differs goes to the quarantine, so that the model can be pulled again.

        Args:
            manifest: of the model.
            progress: is called with the bytes of a file that are read.

        Raises:
            StoreError: another process is changing the store.
        """
        found: list[Damage] = []
        for file in {file.sha256: file for file in manifest.files}.values():
            try:
                descriptor = self.open_blob(file)
            except StoreError as error:
                found.append(Damage(file, str(error)))
                continue
            try:
                actual = hash_file(descriptor, progress)
            finally:
                os.close(descriptor)
            if actual != file.sha256:
                with self.directory.locked():
                    self.directory.move(BLOBS, file.sha256, QUARANTINE, actual)
                kept = self.directory.path_of(QUARANTINE, actual)
                found.append(Damage(file, f"its SHA-256 is {actual}; moved to {kept}"))
        return found

    # --- unused files ---------------------------------------------------------------

    def _unused_blobs(self) -> Iterator[Unused]:
        used: set[str] = set()
        for model in self.models():
            if isinstance(model, ManifestError):
                raise model
            used.update(file.sha256 for file in model.files)
        yield from self._listed(
            BLOBS,
            (
                name
                for name in self.directory.names(BLOBS)
                if name not in used and self._is_idle(BLOBS, name)
            ),
        )

    def _idle_partial(self) -> Iterator[Unused]:
        names = self.directory.names(PARTIAL)
        busy = {name for name in names if not self._is_idle(PARTIAL, name)}
        idle = (name for name in names if not {name, name.removesuffix(_RECORD)} & busy)
        yield from self._listed(PARTIAL, idle)

    def _is_idle(self, part: str, name: str) -> bool:
        """Tell whether no command writes a file, or is about to add its model."""
        try:
            descriptor = self.directory.open_file(part, name)
        except FileNotFoundError:
            return False
        except (StoreError, OSError):  # no file of a command of this user
            return True
        try:
            return try_lock(descriptor)
        finally:
            os.close(descriptor)

    def _listed(self, part: str, names: Iterator[str] | list[str]) -> Iterator[Unused]:
        for name in names:
            try:
                status = self.directory.status(part, name)
            except FileNotFoundError:
                continue
            yield Unused(part, name, status.st_size if status.st_nlink == 1 else 0)

    def _remove(self, unused: Iterator[Unused]) -> list[Unused]:
        removed = [*unused]
        for file in removed:
            self.directory.remove(file.part, file.name)
        return removed


def with_name(manifest: Manifest, name: str) -> Manifest:
    """Return a manifest under another name."""
    return msgspec.structs.replace(manifest, name=check_name(name))
