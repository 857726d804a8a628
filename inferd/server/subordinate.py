"""The ranges of subordinate uids and groups: of the system's files, and of the operator."""

import os
import pwd
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from inferd.config import Account, ConfigError, UidRange, UserSettings
from inferd.server.identity import (
    FIRST_SUBORDINATE,
    N_IDS,
    ROOT,
    Identities,
    Range,
    Ranges,
    overlap,
)
from inferd.server.limits import (
    MAX_ACCOUNTS_BYTES,
    MAX_NAMES_LOOKED_UP,
    MAX_SUBORDINATE_BYTES,
)

log = structlog.get_logger("users")

FIRST_PERSON: Final = 1000
"""The first uid of people; below are the system's accounts, for which programs run
containers of whomever."""
_NOBODY_UID: Final = 65_534
_FIELDS: Final = 3
_MAX_DIGITS: Final = 10

_PASSWD: Final = Path("/etc/passwd")
_NSSWITCH: Final = Path("/etc/nsswitch.conf")

LookUp = Callable[[str], int | None]
"""Finds the uid of a name."""


class Parsed(NamedTuple):
    """What a file says."""

    ranges: list[Range]
    n_ignored: int
    """Lines that are none, and ranges below ``FIRST_SUBORDINATE``."""


def parse(text: str, look_up: LookUp) -> Parsed:
    """Read lines of ``owner:first:count``.

    Args:
        text: of ``subuid(5)`` or ``subgid(5)``.
        look_up: finds the uid of an owner who is not a number.
    """
    ranges: list[Range] = []
    n_ignored = 0
    for line in text.split("\n"):  # nothing else ends a line of these files
        if not line.strip() or line.startswith("#"):
            continue
        found = _parse_line(line, look_up)
        if found is None:
            n_ignored += 1
        else:
            ranges.append(found)
    return Parsed(ranges, n_ignored)


def _parse_line(line: str, look_up: LookUp) -> Range | None:
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
    return Range(begin, first + count - begin, _person(owner))


def _number(text: str) -> int | None:
    is_one = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if is_one else None


def _person(uid: int | None) -> int | None:
    """Give a uid if it is one that a person has."""
    is_person = uid is not None and FIRST_PERSON <= uid < N_IDS and uid != _NOBODY_UID
    return uid if is_person else None


def load(settings: UserSettings) -> Identities:
    """Read what is known of subordinate uids, as of now.

    What is wrong in the system's files is left out, with a line of the log.

    Raises:
        ConfigError: a range of the settings cannot be used.

    Bounds:
        Reads 1 MiB of either file and 16 MiB of the accounts; names that these do not have
        are looked up in the system's directory, 64 of them.
    """
    accounts = _accounts()
    look_up = _Names(accounts)
    configured = [_configured(each, look_up) for each in settings.ranges]
    if both := overlap(configured):
        one, other = both
        raise ConfigError(
            f"users.ranges: {one.first}+{one.count} and {other.first}+{other.count} have "
            "uids in common"
        )
    _tell_of_other_sources()
    return Identities(
        Ranges(configured),
        Ranges(_read_ranges(Path(settings.subuid_file), look_up)),
        Ranges(_read_ranges(Path(settings.subgid_file), look_up)),
        frozenset({ROOT, os.getuid(), *accounts.values()}),
    )


class _Names:
    """Finds uids by name: of the system's file, and a bounded number in its directory."""

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


def _configured(setting: UidRange, look_up: LookUp) -> Range:
    first, count, owner = setting.first, setting.count, setting.owner
    key = f"users.ranges: {first}+{count}"
    if first + count > N_IDS:
        raise ConfigError(f"{key}: there are no such uids")
    if owner is not None and setting.block is not None:
        raise ConfigError(f"{key}: expected an owner or a block, not both")
    if owner is None:
        return Range(first, count, block=setting.block or count)
    return Range(first, count, _owner(key, owner, look_up))


def _owner(key: str, owner: Account, look_up: LookUp) -> int:
    uid = look_up(owner) if isinstance(owner, str) else owner
    if uid is None or uid == ROOT:  # nobody is to get at what is root's
        raise ConfigError(
            f"{key}: owner {owner!r}: expected a number, or a name that this system knows, "
            "and not root's"
        )
    return uid


def _accounts() -> dict[str, int]:
    """Read the names and uids of the accounts that this machine has itself."""
    found: dict[str, int] = {}
    for line in _read(_PASSWD, MAX_ACCOUNTS_BYTES).split("\n"):
        name, *fields = line.split(":")
        if len(fields) > 1 and (uid := _number(fields[1])) is not None:
            found.setdefault(name, uid)
    return found


def _read_ranges(path: Path, look_up: LookUp) -> list[Range]:
    ranges, n_ignored = parse(_read(path, MAX_SUBORDINATE_BYTES), look_up)
    if n_ignored:
        log.warning("subordinate_ids.ignored", path=str(path), lines=n_ignored)
    return ranges


def _read(path: Path, most_bytes: int) -> str:
    """Read a file of the system's, as far as it is there; whole lines alone."""
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        log.warning("users.unreadable", path=str(path), reason=error.strerror)
        return ""
    if len(data) > most_bytes:
        log.warning("users.too_long", path=str(path), max_bytes=most_bytes)
        data = data[: data.rfind(b"\n", 0, most_bytes) + 1]
    return data.decode(errors="replace")


def _tell_of_other_sources() -> None:
    """Say so where the system has its ranges from elsewhere than its files."""
    for line in _read(_NSSWITCH, MAX_SUBORDINATE_BYTES).split("\n"):
        name, _, sources = line.partition(":")
        used = sources.partition("#")[0].split()
        if name.strip() == "subid" and used and used != ["files"]:
            log.warning("subordinate_ids.elsewhere", sources=used)
