"""inferd bridge: serve HTTP beside the daemon, and keep the tokens of its callers."""

import argparse
import grp
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferd.bridge.identity import token
from inferd.bridge.identity.token import TokenRecord
from inferd.bridge.identity.token_file import (
    BRIDGE_GROUP,
    SYSTEM_TOKENS,
    TokenFileError,
    changing_tokens,
    default_path,
    read_tokens,
)
from inferd.cli.console import EXIT_OK, CommandError
from inferd.cli.models.pull import add_connection_arguments
from inferd.config.load import load_config
from inferd.config.settings import Config, ConfigError
from inferd.installation import command_to_add, service_command
from inferd.terminal import print_line, print_text

HAS_COMMANDS: Final = True
SYSTEM_CONFIG: Final = Path("/etc/inferd/config.toml")
"""Of the machine's daemon and bridge."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options and the commands."""
    _add_config(parser)
    parser.add_argument(
        "--listen",
        metavar="ADDRESS:PORT|PATH",
        help="where to listen; by default bridge.listen, which is 127.0.0.1:8313",
    )
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="of the daemon's sockets"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="listen without TLS at an address that is not loopback",
    )
    parser.add_argument(
        "--development",
        action="store_true",
        help="let programs of the bridge's own user sign in to chats by any name",
    )
    commands = parser.add_subparsers(metavar="COMMAND")
    token = commands.add_parser("token", help="keep the tokens of callers")
    _add_token_commands(token)
    helper = commands.add_parser(
        "helper", help="change models and the daemon for the bridge, as configured"
    )
    _add_config(helper)
    helper.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="of the daemon's sockets, and of its own",
    )
    helper.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="NAME",
        help="a user who may ask it, besides those of bridge_helper.uids",
    )
    add_connection_arguments(helper)
    helper.set_defaults(run=_run_helper)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="file with the configuration, in TOML",
    )


def _add_token_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add = commands.add_parser("add", help="make a token and print it, once")
    add.add_argument("name", metavar="NAME", help="of its holder, the principal")
    add.add_argument(
        "--scope",
        default="inference",
        help="what it allows, separated by commas: inference, models, admin",
    )
    add.add_argument(
        "--quota", type=int, metavar="TOKENS_PER_DAY", help="tokens a day, in UTC"
    )
    add.set_defaults(run=_add_token)
    listed = commands.add_parser("list", help="list the tokens, without their secrets")
    listed.set_defaults(run=_list_tokens)
    remove = commands.add_parser("remove", help="remove all tokens of a name")
    remove.add_argument("name", metavar="NAME")
    remove.set_defaults(run=_remove_tokens)
    for each in (add, listed, remove):
        _add_config(each)
        each.add_argument(
            "--system",
            action="store_true",
            help="of the machine's bridge; as root to add or remove",
        )


def run(arguments: argparse.Namespace) -> int:
    """Serve HTTP until SIGTERM or SIGINT, or carry out a command on tokens."""
    config = _config(arguments)
    try:
        from inferd.bridge.http.listen import BridgeListenError  # noqa: PLC0415  # slow
        from inferd.bridge.serve import BridgeOptions, run_bridge  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise CommandError(
            f"inferd bridge needs the package {error.name}",
            command_to_add("bridge"),
        ) from error
    configured = config.listen.directory
    directory = arguments.directory or (Path(configured) if configured else None)
    options = BridgeOptions(
        settings=config.bridge,
        listen=arguments.listen,
        directory=directory,
        chats=config.chats,
        is_development=arguments.development,
        is_insecure=arguments.insecure,
    )
    try:
        run_bridge(options)
    except (BridgeListenError, TokenFileError) as error:
        raise CommandError(str(error)) from error
    return EXIT_OK


def _run_helper(arguments: argparse.Namespace) -> int:
    """Answer the bridge until SIGTERM or SIGINT."""
    from inferd.management.serve import HelperOptions, run_helper  # noqa: PLC0415  # slow
    from inferd.service.bind import ListenError  # noqa: PLC0415

    config = _config(arguments)
    configured = config.listen.directory
    ca_file = arguments.ca_file
    options = HelperOptions(
        settings=config.bridge_helper,
        users=tuple(arguments.user),
        directory=arguments.directory or (Path(configured) if configured else None),
        ca_file=None if ca_file is None else str(ca_file.absolute()),
    )
    try:
        run_helper(options)
    except (ListenError, ConfigError) as error:
        raise CommandError(str(error)) from error
    return EXIT_OK


def _config(arguments: argparse.Namespace) -> Config:
    try:
        return load_config(getattr(arguments, "config", None))
    except ConfigError as error:
        raise CommandError(str(error), "inferd config check") from error


@dataclass(frozen=True)
class _TokenPlace:
    """Where tokens are."""

    path: Path
    reader_gid: int | None = None
    """The group of the machine's bridge, where it is that one's file."""


def _token_place(arguments: argparse.Namespace) -> _TokenPlace:
    if arguments.system and SYSTEM_CONFIG.exists():
        arguments.config = getattr(arguments, "config", SYSTEM_CONFIG)
    configured = _config(arguments).bridge.tokens
    if not arguments.system:
        return _TokenPlace(Path(configured) if configured else default_path())
    try:
        gid = grp.getgrnam(BRIDGE_GROUP).gr_gid
    except KeyError:
        raise CommandError(
            f"the group {BRIDGE_GROUP} does not exist", service_command()
        ) from None
    return _TokenPlace(Path(configured) if configured else SYSTEM_TOKENS, gid)


def _add_token(arguments: argparse.Namespace) -> int:
    text, token_id, digest = token.make_token(
        os.urandom(token.ID_BYTES + token.SECRET_BYTES)
    )
    fields = {
        "id": token_id,
        "name": arguments.name,
        "sha256": digest,
        "scopes": arguments.scope.split(","),
        "quota": arguments.quota,
    }
    place = _token_place(arguments)
    try:
        record = token.parse_record(fields)
        with changing_tokens(place.path, reader_gid=place.reader_gid) as tokens:
            tokens.append(record)
    except (ValueError, TokenFileError) as error:
        raise CommandError(str(error)) from error
    print_text(f"{text}\n")
    return EXIT_OK


def _list_tokens(arguments: argparse.Namespace) -> int:
    for record in _tokens(_token_place(arguments).path):
        quota = f"  {record.quota} tokens a day" if record.quota else ""
        print_line(f"{record.name}  {record.id}  {','.join(record.scopes)}{quota}")
    return EXIT_OK


def _tokens(path: Path) -> Sequence[TokenRecord]:
    try:
        return read_tokens(path)
    except TokenFileError as error:
        raise CommandError(str(error)) from error


def _remove_tokens(arguments: argparse.Namespace) -> int:
    place = _token_place(arguments)
    try:
        with changing_tokens(place.path, reader_gid=place.reader_gid) as tokens:
            kept = [each for each in tokens if each.name != arguments.name]
            if len(kept) == len(tokens):
                raise CommandError(f"no token has the name {arguments.name}")
            tokens[:] = kept
    except TokenFileError as error:
        raise CommandError(str(error)) from error
    return EXIT_OK
