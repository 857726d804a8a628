"""Load ranges of subordinate ids from the system's files and the configuration."""

import os
import pwd
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from inferd.config.settings import Account, ConfigError, UidRange, UserSettings
from inferd.limits.server import (
    MAX_ACCOUNTS_BYTES,
    MAX_NAMES_LOOKED_UP,
    MAX_SUBORDINATE_BYTES,
)
from inferd.server.identity.mapping import (
    FIRST_SUBORDINATE,
    N_IDS,
    ROOT,
    Identities,
    IdRange,
    IdRanges,
    find_overlap,
)

log = structlog.get_logger("users")

UID_MIN: Final = 1000
"""The first uid of people, as in login.defs(5); lower uids belong to system accounts, whose
programs may run containers for any user."""
_NOBODY_UID: Final = 65_534
_FIELDS: Final = 3
_MAX_DIGITS: Final = 10

_PASSWD: Final = Path("/etc/passwd")
_NSSWITCH: Final = Path("/etc/nsswitch.conf")

LookUp = Callable[[str], int | None]
"""Finds the uid of a name."""


class ParsedRanges(NamedTuple):
    """Ranges from a file."""

    ranges: list[IdRange]
    n_ignored: int
    """Malformed lines, and ranges below ``FIRST_SUBORDINATE``."""


def parse_ranges(text: str, look_up: LookUp) -> ParsedRanges:
    """Parse lines of ``owner:first:count``.

    Args:
        text: of a file as in ``subuid(5)`` or ``subgid(5)``.
        look_up: finds the uid of an owner that is not a number.
    """
    ranges: list[IdRange] = []
    n_ignored = 0
    for line in text.split("\n"):  # in these files, only a newline ends a line
        if not line.strip() or line.startswith("#"):
            continue
        found = _parse_line(line, look_up)
        if found is None:
            n_ignored += 1
        else:
            ranges.append(found)
    return ParsedRanges(ranges, n_ignored)


def _parse_line(line: str, look_up: LookUp) -> IdRange | None:
    fields = [each.strip() for each in line.split(":")]
    if len(fields) != _FIELDS or not fields[0]:
        return None
    first, count = _number(fields[1]), _number(fields[2])
    if first is None or count is None or first + count > N_IDS:
        return None
    begin = max(first, FIRST_SUBORDINATE)
    if begin >= first + count:
        return None
    owner = look_up(fields[0])
    if owner is None:
        owner = _number(fields[0])
    return IdRange(begin, first + count - begin, _person(owner))


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None


def _person(uid: int | None) -> int | None:
    """Return a uid if it is one of a person's."""
    is_person = uid is not None and UID_MIN <= uid < N_IDS and uid != _NOBODY_UID
    return uid if is_person else None


def load_identities(settings: UserSettings) -> Identities:
    """Load the ranges of subordinate ids and the system's accounts.

    Errors in the system's files are skipped and logged.

    Raises:
        ConfigError: a range of the configuration is invalid.

    Bounds:
        Reads 1 MiB of either file and 16 MiB of the accounts; at most 64 other names are
        looked up in the system's user directory.
    """
    accounts = _accounts()
    look_up = _Names(accounts)
    configured = [_configured(each, look_up) for each in settings.ranges]
    if overlap := find_overlap(configured):
        one, other = overlap
        raise ConfigError(
            f"users.ranges: {one.first}+{one.count} and {other.first}+{other.count} have "
            "uids in common"
        )
    _warn_about_other_sources()
    return Identities(
        IdRanges(configured),
        IdRanges(_read_ranges(Path(settings.subuid_file), look_up)),
        IdRanges(_read_ranges(Path(settings.subgid_file), look_up)),
        frozenset({ROOT, os.getuid(), *accounts.values()}),
    )


class _Names:
    """Finds uids by name: from ``/etc/passwd``, and a bounded number by ``getpwnam``."""

    def __init__(self, accounts: Mapping[str, int]) -> None:
        self._known: dict[str, int | None] = {**accounts}
        self._n_left = MAX_NAMES_LOOKED_UP

    def __call__(self, name: str) -> int | None:
        if name in self._known or not self._n_left:
            return self._known.get(name)
        if _number(name) is not None:
            return None
        self._n_left -= 1
        try:
            self._known[name] = pwd.getpwnam(name).pw_uid
        except (KeyError, ValueError):
            self._known[name] = None
        return self._known[name]


def _configured(setting: UidRange, look_up: LookUp) -> IdRange:
    first, count, owner = setting.first, setting.count, setting.owner
    key = f"users.ranges: {first}+{count}"
    if first + count > N_IDS:
        raise ConfigError(f"{key}: the last uid is {N_IDS - 1}")
    if owner is not None and setting.block is not None:
        raise ConfigError(f"{key}: expected an owner or a block, not both")
    if owner is None:
        return IdRange(first, count, block=setting.block or count)
    return IdRange(first, count, _owner(key, owner, look_up))


def _owner(key: str, owner: Account, look_up: LookUp) -> int:
    uid = look_up(owner) if isinstance(owner, str) else owner
    if uid is None or uid == ROOT:  # nobody may own root's requests
        raise ConfigError(
            f"{key}: owner {owner!r}: expected a number, or a name that this system knows, "
            "and not root's"
        )
    return uid


def _accounts() -> dict[str, int]:
    """Read the names and uids of this machine's own accounts."""
    found: dict[str, int] = {}
    for line in _read(_PASSWD, MAX_ACCOUNTS_BYTES).split("\n"):
        name, *fields = line.split(":")
        if len(fields) > 1 and (uid := _number(fields[1])) is not None:
            found.setdefault(name, uid)
    return found


def _read_ranges(path: Path, look_up: LookUp) -> list[IdRange]:
    ranges, n_ignored = parse_ranges(_read(path, MAX_SUBORDINATE_BYTES), look_up)
    if n_ignored:
        log.warning("subordinate_ids.ignored", path=str(path), lines=n_ignored)
    return ranges


def _read(path: Path, max_bytes: int) -> str:
    """Read the whole lines of a system file, up to a bound; an absent file is empty."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        log.warning("users.unreadable", path=str(path), reason=error.strerror)
        return ""
    if len(data) > max_bytes:
        log.warning("users.too_long", path=str(path), max_bytes=max_bytes)
        data = data[: data.rfind(b"\n", 0, max_bytes) + 1]
    return data.decode(errors="replace")


def _warn_about_other_sources() -> None:
    """Log a warning where nsswitch.conf(5) names other sources of ranges than the files."""
    for line in _read(_NSSWITCH, MAX_SUBORDINATE_BYTES).split("\n"):
        name, _, sources = line.partition(":")
        used = sources.partition("#")[0].split()
        if name.strip() == "subid" and used and used != ["files"]:
            log.warning("subordinate_ids.elsewhere", sources=used)
