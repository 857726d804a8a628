"""Whether the source of a model has another one by now."""

from enum import StrEnum
from typing import NamedTuple

from inferd.models.pull.choice import choose
from inferd.models.pull.errors import PullError
from inferd.models.pull.messages import ListHub
from inferd.models.pull.process import Downloader
from inferd.models.pull.source import HUB, HubSource, parse_source
from inferd.models.store.manifest import Manifest


class Age(StrEnum):
    """What became of a model's source."""

    CURRENT = "current"
    OUTDATED = "outdated"
    FIXED = "fixed"
    """The source is a file, or pinned by SHA-256 or commit: it cannot have another one."""
    UNKNOWN = "unknown"
    """The source could not be asked."""


class Comparison(NamedTuple):
    """A model and its source."""

    age: Age
    revision: str = ""
    """That the source has now."""
    reason: str = ""
    """Why the source could not be asked."""


def compare(manifest: Manifest, downloader: Downloader, token: str) -> Comparison:
    """Ask the source of a model whether it has other files for it now.

    A newer revision with the same files does not make a model outdated.

    Args:
        manifest: of the model.
        downloader: asks.
        token: for the hub.
    """
    if not manifest.source.startswith(HUB):
        return Comparison(Age.FIXED)
    try:
        source = parse_source(manifest.source)
        if not isinstance(source, HubSource) or _is_commit(source, manifest):
            return Comparison(Age.FIXED, manifest.revision)
        listing = downloader.list_hub(
            ListHub(repository=source.repository, revision=source.revision, token=token)
        )
        if listing.commit == manifest.revision:
            return Comparison(Age.CURRENT, listing.commit)
        chosen = choose(
            source,
            listing.files,
            with_projector=bool(manifest.files_of("projector")),
        )
    except PullError as error:
        return Comparison(Age.UNKNOWN, reason=error.text)
    is_same = [(each.file.sha256, each.role) for each in chosen.files] == [
        (file.sha256, file.role) for file in manifest.files
    ]
    return Comparison(Age.CURRENT if is_same else Age.OUTDATED, listing.commit)


def _is_commit(source: HubSource, manifest: Manifest) -> bool:
    return source.revision != "" and source.revision == manifest.revision
