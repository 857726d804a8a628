"""A new configuration for a daemon that runs: what can take effect, and what cannot."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from inferd.config import Config

ADMISSION: Final = (
    *("max_queued", "max_queued_tokens", "max_queued_bytes"),
    *("quantum_s", "max_live"),
)
LIMITS: Final = (
    *("drain_s", "write_timeout_s", "max_unread_bytes", "idle_s", "line_timeout_s"),
    *("max_connections", "max_admin_connections", "max_large_lines"),
    *("max_media_bytes", "max_passed_bytes"),
    *("max_appended_bytes", "max_audio_ahead_bytes"),
)
"""What can take effect; of ``[access]`` nearly all, of ``[users]`` all, of ``[log]`` the level, and of the
other tables nothing.

The rest is what workers, sockets and slots were made of.
"""


class Reloaded(NamedTuple):
    """What came of it, by the keys that differ."""

    applied: list[str]
    needs_restart: list[str]


def merge(running: Config, new: Config) -> Config:
    """Put what can take effect of a new configuration into the one that is in force.

    The mode that ``admin.sock`` was made with says whether it has a rule.
    """
    access = new.access
    if (running.access.admin is None) != (access.admin is None):
        access = msgspec.structs.replace(access, admin=running.access.admin)
    return msgspec.structs.replace(
        running,
        access=access,
        users=new.users,
        admission=msgspec.structs.replace(
            running.admission, **{key: getattr(new.admission, key) for key in ADMISSION}
        ),
        limits=msgspec.structs.replace(
            running.limits, **{key: getattr(new.limits, key) for key in LIMITS}
        ),
        log=msgspec.structs.replace(running.log, level=new.log.level),
    )


def compare(running: Config, merged: Config, new: Config) -> Reloaded:
    """Name what took effect, and what waits for a restart."""
    return Reloaded([*_differences(running, merged)], [*_differences(merged, new)])


def _differences(one: Config, other: Config) -> Iterator[str]:
    for table in Config.__struct_fields__:
        left, right = getattr(one, table), getattr(other, table)
        if isinstance(left, msgspec.Struct):
            yield from _differing_keys(table, left, right)
        elif [each.name for each in left] != [each.name for each in right]:
            yield table
        else:
            for a, b in zip(left, right, strict=True):
                if type(a) is type(b):
                    yield from _differing_keys(f"{table} {a.name}:", a, b)
                else:
                    yield f"{table} {a.name}: kind"


def _differing_keys(
    table: str, one: msgspec.Struct, other: msgspec.Struct
) -> Iterator[str]:
    for key in one.__struct_fields__:
        if getattr(one, key) != getattr(other, key):
            yield f"{table} {key}" if table.endswith(":") else f"{table}.{key}"
