"""A pull: from a source to a model of the store."""

import os
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from inferd.limits.models import STORE_FREE_BYTES
from inferd.models.bring import now
from inferd.models.embedded import EMBEDDED_PREFIX
from inferd.models.kinds import MAGIC_BYTES, kind_of
from inferd.models.pull.choice import choose
from inferd.models.pull.download import (
    DownloadBounds,
    Progress,
    WantedFile,
    download,
    has_file,
)
from inferd.models.pull.errors import SPACE, PullError
from inferd.models.pull.messages import ListHub
from inferd.models.pull.process import Downloader
from inferd.models.pull.source import HttpsSource, HubSource, Source
from inferd.models.store.manifest import (
    Kind,
    Manifest,
    ManifestError,
    Role,
    StoredFile,
    is_file_name,
)
from inferd.models.store.names import InvalidNameError, check_name
from inferd.models.store.store import ModelNotInStoreError, ModelStore


@dataclass(frozen=True, slots=True)
class PullOptions:
    """How a model is pulled."""

    name: str | None = None
    """In the store; ``None`` for one that follows from the source."""
    with_projector: bool = True
    token: str = ""
    """For the hub."""
    bounds: DownloadBounds = field(default_factory=DownloadBounds)


@dataclass(frozen=True, slots=True)
class PullPlan:
    """A model that is to be in the store."""

    name: str
    source: str
    files: tuple[tuple[WantedFile, Role], ...]
    revision: str = ""
    license: str = ""


def plan_pull(
    store: ModelStore, downloader: Downloader, source: Source, options: PullOptions
) -> PullPlan:
    """Find out what a model is made of; nothing is downloaded yet.

    Raises:
        PullError: the source has no such model, or the name is another model's.
        InvalidNameError: the name cannot be one.
    """
    plan = _plan(downloader, source, options)
    for wanted, _ in plan.files:
        if not is_file_name(wanted.name):
            raise PullError(f"{wanted.name!r} cannot be the name of a file")
    check_name_is_free(store, plan.name, plan.source)
    return plan


def _plan(downloader: Downloader, source: Source, options: PullOptions) -> PullPlan:
    match source:
        case HttpsSource():
            wanted = WantedFile(source.file_name, source.url, source.sha256)
            name = options.name or source.default_name
            return PullPlan(name, str(source), ((wanted, "model"),))
        case HubSource():
            return _plan_hub(downloader, source, options)


def _plan_hub(
    downloader: Downloader, source: HubSource, options: PullOptions
) -> PullPlan:
    listing = downloader.list_hub(
        ListHub(
            repository=source.repository,
            revision=source.revision,
            token=options.token,
        )
    )
    chosen = choose(source, listing.files, with_projector=options.with_projector)
    return PullPlan(
        name=options.name or chosen.name,
        source=str(source),
        revision=listing.commit,
        license=listing.license,
        files=tuple(
            (
                WantedFile(
                    name=each.file.path.rpartition("/")[2],
                    url=each.file.url,
                    sha256=each.file.sha256,
                    n_bytes=each.file.n_bytes,
                    token=options.token,
                ),
                each.role,
            )
            for each in chosen.files
        ),
    )


def check_name_is_free(
    store: ModelStore, name: str, source: str, digests: Collection[str] = ()
) -> None:
    """Refuse to replace the model of another source, and names of embedded models.

    Args:
        store: the model is to be in.
        name: of the model.
        source: of the model.
        digests: of its files, if they are known: the same files may come from elsewhere.

    Raises:
        PullError: the model of this source cannot have this name.
    """
    try:
        check_name(name)
        if name.startswith(EMBEDDED_PREFIX) and name != source:
            raise PullError(
                f"{name}: names that begin with {EMBEDDED_PREFIX} are those of the "
                "embedded models",
                "choose another: --name NAME",
            )
        present = store.model(name)
    except ModelNotInStoreError:
        return
    except InvalidNameError as error:
        raise PullError(str(error), "choose one: --name NAME") from error
    except ManifestError as error:
        raise PullError(
            str(error), f"inferd model remove {name}, or --name NAME for another"
        ) from error
    is_same = {file.sha256 for file in present.files} == {*digests}
    if present.source != source and not is_same:
        raise PullError(
            f"the store has {name} from another source, {present.source}",
            f"--name NAME for another name, or first: inferd model remove {name}",
        )


def pull(
    store: ModelStore,
    downloader: Downloader,
    plan: PullPlan,
    bounds: DownloadBounds,
    progress_of: Callable[[WantedFile], Progress],
) -> Manifest:
    """Download what the store lacks of a model, and add it.

    Ended at any moment, the store has the model of before, or the new one.

    Raises:
        PullError: a server does not send what it should.
        StoreError: the file system is full, another command pulls the same, or a file has
            another SHA-256.
    """
    with ExitStack() as held:
        missing = [
            wanted for wanted, _ in plan.files if not _is_held(store, wanted, held)
        ]
        _check_space(store, missing)
        for each in dict.fromkeys(missing):
            progress = progress_of(each)
            download(store.directory, downloader, each, progress, bounds, held)
        files, kinds = zip(
            *(_stored(store, wanted, role) for wanted, role in plan.files), strict=True
        )
        manifest = Manifest(
            name=plan.name,
            kind=kinds[0],
            source=plan.source,
            revision=plan.revision,
            license=plan.license,
            created=now(),
            files=files,
        )
        store.publish(manifest)
    return manifest


def _is_held(store: ModelStore, wanted: WantedFile, held: ExitStack) -> bool:
    """Tell whether the store has a file, which then stays there."""
    with suppress(FileNotFoundError):
        held.callback(os.close, store.hold_blob(wanted.sha256))
        return has_file(store.directory, wanted)
    return False


def _check_space(store: ModelStore, missing: list[WantedFile]) -> None:
    """Check that all files fit that are missing, before the first byte of the first."""
    needed = sum(wanted.n_bytes or 0 for wanted in missing)
    free = store.directory.free_bytes()
    begun = sum(
        store.directory.status("partial", name).st_size
        for name in store.directory.names("partial")
        if name in {f"pull-{wanted.sha256}" for wanted in missing}
    )
    if missing and free + begun < needed + STORE_FREE_BYTES:
        raise PullError(
            f"{store.directory.path} has {free} bytes free, and "
            f"{needed - begun + STORE_FREE_BYTES} are needed",
            SPACE,
        )


def _stored(
    store: ModelStore, wanted: WantedFile, role: Role
) -> tuple[StoredFile, Kind]:
    """Describe a file that the store has."""
    descriptor = store.directory.open_file("blobs", wanted.sha256)
    with os.fdopen(descriptor, "rb") as file:
        n_bytes = os.fstat(descriptor).st_size
        kind = kind_of(file.read(MAGIC_BYTES))
    if kind is None:
        raise PullError(f"{wanted.name} is neither a GGUF file nor one of whisper.cpp")
    stored = StoredFile(
        name=wanted.name, sha256=wanted.sha256, n_bytes=n_bytes, role=role
    )
    return stored, kind
