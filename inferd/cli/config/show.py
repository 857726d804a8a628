"""inferd config show: the settings in force, and where each comes from."""

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from inferd.cli.console import EXIT_OK, CommandError
from inferd.config.kinds.registry import KINDS, KindRegistry
from inferd.config.load import config_file, read_text, socket_directory
from inferd.config.parse import parse_config, parse_toml
from inferd.config.settings import Config, ConfigError
from inferd.config.toml_text import toml_value
from inferd.paths import log_directory
from inferd.server.capacity import max_active_requests, memory_budget
from inferd.terminal import json_safe, print_json, print_line

DEFAULT: Final = "default"
_DIRECTORIES: Final = ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR", "HOME")
_LOG_DIRECTORIES: Final = ("INFERD_LOG_DIR", "LOGS_DIRECTORY", "HOME")
_NOW: Final = "now: "
"""Begins the source of a value that follows from the machine at this moment."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting in force."""

    table: str
    """``limits``, or ``backend[0]``."""
    key: str
    value: object
    """``None`` if it is not set."""
    source: str
    """The file's path, ``default``, or what the default follows from."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the TOML configuration; by default the one that inferd serve would read",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = (
        "What is printed is a configuration itself. Defaults that follow from the "
        "machine are those of now and of this user."
    )


def run(arguments: argparse.Namespace, kinds: KindRegistry = KINDS) -> int:
    """Print each setting with its source; exit 2 if the file cannot be used."""
    try:
        path = config_file(arguments.config)
        text = read_text(path) if path else ""
        document = parse_toml(text)
        config = parse_config(text, kinds)
    except ConfigError as error:
        raise CommandError(str(error), "inferd config check") from error
    found = [*_settings(config, document, str(path))]
    if arguments.json:
        report = {"file": str(path) if path else None, "settings": found}
        print_json(json_safe(msgspec.json.encode(report, enc_hook=str).decode()))
        return EXIT_OK
    print_line(
        f"# the file is {path}" if path else "# there is no file: all is default"
    )
    table = ""
    for setting in found:
        if setting.table != table:
            table = setting.table
            print_line("")
            print_line("[[backend]]" if table.startswith("backend[") else f"[{table}]")
        print_line(_line(setting))
    return EXIT_OK


def _line(setting: Setting) -> str:
    if setting.value is None:
        return f"# {setting.key} is not set  # {setting.source}"
    line = f"{setting.key} = {toml_value(setting.value)}"
    # What follows from the machine is printed as a comment: it is that of this moment.
    return f"{'# ' * setting.source.startswith(_NOW)}{line}  # {setting.source}"


def _settings(
    config: Config, document: Mapping[str, object], file: str
) -> Iterator[Setting]:
    for table in Config.__struct_fields__:
        value = getattr(config, table)
        given = document.get(table)
        if isinstance(value, msgspec.Struct):
            yield from _of_table(config, table, value, given, file)
            continue
        tables = given if isinstance(given, list) else []
        for index, backend in enumerate(value):
            fields = tables[index] if index < len(tables) else {}
            tag = type(backend).__struct_config__
            name = f"{table}[{index}]"
            yield Setting(
                table=name,
                key=str(tag.tag_field),
                value=tag.tag,
                source=file if fields else DEFAULT,
            )
            yield from _of_table(config, name, backend, fields, file)


def _of_table(
    config: Config, table: str, value: msgspec.Struct, given: object, file: str
) -> Iterator[Setting]:
    fields = given if isinstance(given, Mapping) else {}
    for key in value.__struct_fields__:
        current = getattr(value, key)
        source = file if key in fields else DEFAULT
        if current is None:
            current, source = _effective(f"{table}.{key}", config, source)
        yield Setting(table=table, key=key, value=current, source=source)


def _effective(key: str, config: Config, source: str) -> tuple[object, str]:
    """Return the value and the source of a setting whose default is not fixed."""
    match key:
        case "listen.directory":
            return str(socket_directory(config)), _first_set(_DIRECTORIES)
        case "log.directory":
            directory = log_directory()
            found = str(directory) if directory else None
            return found, _first_set(_LOG_DIRECTORIES)
        case "admission.max_active":
            return max_active_requests(config), f"{_NOW}the cores, 4 at most"
        case "memory.budget":
            free = memory_budget(config).n_bytes
            return free, f"{_NOW}the memory that is free, less the reserve"
        case _:
            return None, source


def _first_set(variables: tuple[str, ...]) -> str:
    """Name the first environment variable that is set."""
    found = next((name for name in variables if name in os.environ), None)
    return f"{_NOW}${found}" if found else DEFAULT
