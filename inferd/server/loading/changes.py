"""Which backends a changed configuration keeps, replaces, adds and removes; nothing is done."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from inferd.config.settings import BackendSettings


def nameless(settings: BackendSettings) -> BackendSettings:
    """Remove what needs no other engine."""
    return replace(settings, name="", aliases=())


class FileState(NamedTuple):
    """What tells a file from the one that was at its path before."""

    device: int
    inode: int
    n_bytes: int
    modified_ns: int


class Candidate(NamedTuple):
    """What could serve a table: its settings, with the paths of its files."""

    settings: BackendSettings
    files: tuple[FileState | None, ...] = ()
    """Of those files; ``None`` for one that is not there."""
    rung: str = ""
    """Its model as it is configured, if that is one of a ladder."""

    def is_same(self, other: "Candidate") -> bool:
        """Return whether the same engine could serve both: all but their names is equal."""
        if self.files != other.files:
            return False
        return nameless(self.settings) == nameless(other.settings)


class Served(NamedTuple):
    """A backend that is there."""

    key: str
    configured: BackendSettings
    """Its table."""
    candidate: Candidate | None
    """What serves it; ``None`` for a kind without a worker."""
    is_serving: bool
    """Whether it is in service: what is not is tried again."""


class Wanted(NamedTuple):
    """A table of the changed configuration."""

    configured: BackendSettings
    candidates: Sequence[Candidate]
    """What could serve it, the first that fits into memory; none for a kind without a
    worker, which needs a restart."""


class Change(NamedTuple):
    """A table that needs another engine."""

    wanted: Wanted
    old: str | None
    """The key of the backend that it replaces; ``None`` if it is added."""


class ChangePlan(NamedTuple):
    """What is to be done for a changed configuration."""

    kept: Mapping[str, BackendSettings]
    """The tables of the backends that stay as they are, by their keys."""
    changes: Sequence[Change]
    removed: Sequence[str]
    """The keys of backends that no table is for."""


def plan_changes(served: Sequence[Served], wanted: Sequence[Wanted]) -> ChangePlan:
    """Compare what is there with what is wanted.

    What serves is compared, not what a file said before: settings, paths and files. A table
    under a new name that is otherwise equal to one that is gone replaces that backend.
    """
    by_name = {each.configured.name: each for each in served}
    names = {each.configured.name for each in wanted}
    leaving = [each for each in served if each.configured.name not in names]
    kept = {
        each.key: each.configured
        for each in served
        if each.candidate is None and each in leaving
    }
    leaving = [each for each in leaving if each.candidate is not None]
    changes: list[Change] = []
    for each in wanted:
        old = by_name.get(each.configured.name)
        if not each.candidates:
            if old is not None:
                kept[old.key] = old.configured
        elif old is not None and _is_kept(old, each):
            kept[old.key] = each.configured
        else:
            if old is None:
                old = next((was for was in leaving if _could_serve(was, each)), None)
                leaving = [was for was in leaving if was is not old]
            changes.append(Change(each, None if old is None else old.key))
    return ChangePlan(kept, changes, [each.key for each in leaving])


def _is_kept(old: Served, new: Wanted) -> bool:
    """Return whether a backend serves a table already.

    A ladder is not chosen from again as long as its table is the same.
    """
    if not old.is_serving or not _could_serve(old, new):
        return False
    if not new.candidates[0].rung:
        return True
    return nameless(old.configured) == nameless(new.configured)


def _could_serve(old: Served, new: Wanted) -> bool:
    was = old.candidate
    return was is not None and any(was.is_same(each) for each in new.candidates)
