"""inferd chats: copy, restore, upgrade and roll back the database of chats."""

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from inferd.cli.console import EXIT_OK, CommandError
from inferd.config.load import load_config
from inferd.config.settings import ConfigError
from inferd.installation import command_to_add
from inferd.paths import state_directory
from inferd.terminal import print_line

HAS_COMMANDS = True
if TYPE_CHECKING:
    from inferd.chats.storage.database import DatabasePlace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    status = commands.add_parser("status", help="tell where chats are, and how many")
    status.set_defaults(work=_status)
    backup = commands.add_parser(
        "backup", help="copy the database into a new file; the bridge may run"
    )
    backup.add_argument("file", type=Path, metavar="FILE")
    backup.set_defaults(work=_back_up)
    restore = commands.add_parser(
        "restore",
        help="put a copy in the place of the database; the bridge must not run",
    )
    restore.add_argument("file", type=Path, metavar="FILE")
    restore.set_defaults(work=_restore)
    upgrade = commands.add_parser(
        "upgrade", help="bring the database to the schema of this version"
    )
    upgrade.set_defaults(work=_upgrade)
    rollback = commands.add_parser(
        "rollback", help="bring it back to an earlier schema, for an earlier version"
    )
    rollback.add_argument("revision", metavar="REVISION")
    rollback.set_defaults(work=_roll_back)
    for each in (status, backup, restore, upgrade, rollback):
        each.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            default=argparse.SUPPRESS,
            help="file with the configuration, in TOML",
        )
        each.add_argument(
            "--database", metavar="FILE|URL", help="instead of chats.database"
        )


def run(arguments: argparse.Namespace) -> int:
    """Run one of the commands."""
    try:
        from inferd.chats.failures import ChatError  # noqa: PLC0415  # slow
        from inferd.chats.storage.database import (  # noqa: PLC0415
            place_of_database,
        )
    except ModuleNotFoundError as error:
        raise CommandError(
            f"inferd chats needs the package {error.name}",
            command_to_add("bridge"),
        ) from error
    try:
        configured = load_config(getattr(arguments, "config", None)).chats.database
        place = place_of_database(arguments.database or configured, state_directory())
        arguments.work(arguments, place)
    except ConfigError as error:
        raise CommandError(str(error), "inferd config check") from error
    except ChatError as error:
        raise CommandError(str(error)) from error
    return EXIT_OK


def _status(_: argparse.Namespace, place: "DatabasePlace") -> None:
    from inferd.chats.storage.chats import count_all  # noqa: PLC0415  # slow
    from inferd.chats.storage.database import ChatDatabase  # noqa: PLC0415
    from inferd.chats.storage.schema import current_revision  # noqa: PLC0415

    _check_there(place)
    database = ChatDatabase(place, checks=False)
    revision = database.run(current_revision)
    n_chats, n_messages = database.run(count_all)
    database.close()
    print_line(f"{place.shown}")
    print_line(f"revision {revision}, {n_chats} chats, {n_messages} messages")


def _back_up(arguments: argparse.Namespace, place: "DatabasePlace") -> None:
    from inferd.chats.storage.backup import back_up  # noqa: PLC0415  # slow

    back_up(place, arguments.file)


def _restore(arguments: argparse.Namespace, place: "DatabasePlace") -> None:
    from inferd.chats.storage.backup import restore  # noqa: PLC0415  # slow

    restore(place, arguments.file)


def _upgrade(_: argparse.Namespace, place: "DatabasePlace") -> None:
    from inferd.chats.storage.schema import HEAD  # noqa: PLC0415  # slow

    _change(place, HEAD, is_upgrade=True)


def _roll_back(arguments: argparse.Namespace, place: "DatabasePlace") -> None:
    from inferd.chats.storage.schema import REVISIONS  # noqa: PLC0415  # slow

    if arguments.revision not in REVISIONS:
        raise CommandError(f"there is no revision {arguments.revision}")
    _change(place, arguments.revision, is_upgrade=False)


def _change(place: "DatabasePlace", revision: str, *, is_upgrade: bool) -> None:
    """Change the schema, with a copy of the database beside it before."""
    from inferd.chats.storage.backup import back_up  # noqa: PLC0415  # slow
    from inferd.chats.storage.database import ChatDatabase  # noqa: PLC0415
    from inferd.chats.storage.schema import move  # noqa: PLC0415

    _check_there(place)
    if place.file is not None:
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        copy = place.file.with_name(f"{place.file.name}.{moment}.backup")
        back_up(place, copy)
        print_line(f"a copy is in {copy}")
    database = ChatDatabase(place, checks=False)
    database.run(lambda connection: move(connection, revision, is_upgrade=is_upgrade))
    database.close()
    print_line(f"revision {revision}")


def _check_there(place: "DatabasePlace") -> None:
    if place.file is not None and not place.file.exists():
        raise CommandError(f"{place.file}: there are no chats")
