"""The settings that a running daemon can change, and the comparison of configurations."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from inferd.config.settings import BackendSettings, Config

RELOADABLE_ADMISSION: Final = (
    *("max_queued", "max_queued_tokens", "max_queued_bytes"),
    *("quantum_s", "max_live", "gateway_weight"),
)
RELOADABLE_LIMITS: Final = (
    *("drain_s", "write_timeout_s", "max_unread_bytes", "idle_s", "line_timeout_s"),
    *("max_connections", "max_admin_connections", "max_large_lines"),
    *("max_media_bytes", "max_passed_bytes"),
    *("max_appended_bytes", "max_audio_ahead_bytes"),
)
"""Keys of ``[limits]`` that can change. Nearly all of ``[access]`` can change as well, all of
``[users]``, the level of ``[log]``, the aliases of each ``[[backend]]``, and all of those that
are workers.

Settings that are in none of these tables are used once, to make workers, sockets and slots.
"""


class ReloadError(Exception):
    """A reload failed, or not all of it is in force; the message is one line for operators."""


class ReloadResult(NamedTuple):
    """The keys that differ, by whether they were applied."""

    applied: list[str]
    needs_restart: list[str]


def merge_config(
    running: Config, new: Config, backends: Sequence[BackendSettings]
) -> Config:
    """Replace those settings of the running configuration that can change.

    ``backends`` are those that are in force after the change.

    Whether ``access.admin`` is set cannot change: the mode of ``admin.sock`` follows it.
    """
    access = new.access
    if (running.access.admin is None) != (access.admin is None):
        access = msgspec.structs.replace(access, admin=running.access.admin)
    return msgspec.structs.replace(
        running,
        access=access,
        users=new.users,
        models=new.models,
        admission=msgspec.structs.replace(
            running.admission,
            **{key: getattr(new.admission, key) for key in RELOADABLE_ADMISSION},
        ),
        limits=msgspec.structs.replace(
            running.limits,
            **{key: getattr(new.limits, key) for key in RELOADABLE_LIMITS},
        ),
        log=msgspec.structs.replace(running.log, level=new.log.level),
        backend=_with_aliases(backends, new.backend),
    )


def _with_aliases(
    running: Sequence[BackendSettings], new: Sequence[BackendSettings]
) -> tuple[BackendSettings, ...]:
    """Replace the aliases of backends; one that the new file lacks gets none."""
    aliases = {each.name: each.aliases for each in new}
    return tuple(
        msgspec.structs.replace(each, aliases=aliases.get(each.name, ()))
        for each in running
    )


def compare_configs(running: Config, merged: Config, new: Config) -> ReloadResult:
    """List the keys that were applied, and those that need a restart.

    Those of ``[bridge]`` are another process's.
    """
    new = msgspec.structs.replace(new, bridge=running.bridge)
    return ReloadResult([*_differences(running, merged)], [*_differences(merged, new)])


def _differences(one: Config, other: Config) -> Iterator[str]:
    for table in Config.__struct_fields__:
        left, right = getattr(one, table), getattr(other, table)
        if isinstance(left, msgspec.Struct):
            yield from _differing_keys(table, left, right)
        else:
            yield from _differing_backends(table, left, right)


def _differing_backends(
    table: str, one: Sequence[BackendSettings], other: Sequence[BackendSettings]
) -> Iterator[str]:
    """List the backends that are only in one, and what differs in those of both."""
    before, after = ({each.name: each for each in tables} for tables in (one, other))
    yield from (f"{table} {name}: removed" for name in before if name not in after)
    yield from (f"{table} {name}: added" for name in after if name not in before)
    kept = [name for name in after if name in before]
    if kept != [name for name in before if name in after]:
        yield f"{table}: order"
    for name in kept:
        if type(before[name]) is type(after[name]):
            yield from _differing_keys(f"{table} {name}:", before[name], after[name])
        else:
            yield f"{table} {name}: kind"


def _differing_keys(
    table: str, one: msgspec.Struct, other: msgspec.Struct
) -> Iterator[str]:
    for key in one.__struct_fields__:
        if getattr(one, key) != getattr(other, key):
            yield f"{table} {key}" if table.endswith(":") else f"{table}.{key}"
