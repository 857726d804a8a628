"""Manual pages: one for each command, from its parser, and one for the configuration."""

import argparse
import itertools
import re
from collections.abc import Iterator
from typing import Final

from msgspec.inspect import Field, StructType

from inferd import __version__
from inferd.cli import whole_parser
from tools.documents.arguments import (
    MANY,
    Command,
    all_commands,
    takes_value,
    value_of,
)
from tools.documents.markdown import first_line
from tools.documents.roff import (
    Title,
    bold,
    filled,
    italic,
    lines_kept,
    name_line,
    page,
    paragraph,
    tagged,
)
from tools.documents.settings import (
    SETTINGS_INTRO,
    default_text,
    docs_of,
    tables,
    type_text,
)

DATE: Final = "2026-11-24"
"""Of all pages: the day on which this version was begun. A date of each build would make each
build another one."""
SOURCE: Final = f"inferd {__version__}"
CONFIGURATION: Final = "inferd.toml"
SUMMARY: Final = "run language and speech models on this machine"
FILES: Final = (
    ("/etc/inferd/config.toml", "The configuration of the machine's service."),
    ("~/.config/inferd/config.toml", "The configuration of a user's own daemon."),
    ("/run/inferd/infer.sock", "The socket of the machine's service."),
    ("/var/lib/inferd/models", "The models of the machine's service."),
    ("~/.local/share/inferd/models", "The models of a user."),
)
ENVIRONMENT: Final = (
    ("INFERD_CONFIG", "The file of the configuration."),
    ("INFERD_MODELS", "The directory of models."),
    ("HF_TOKEN", "What `inferd model pull` sends to Hugging Face's hub."),
)


def manual_pages() -> dict[str, str]:
    """Write all pages, by the names of their files."""
    top = Command(("inferd",), SUMMARY, whole_parser())
    pages = {
        f"man1/{command.page}.1": command_page(command) for command in all_commands(top)
    }
    return {**pages, f"man5/{CONFIGURATION}.5": configuration_page()}


# --- commands ---------------------------------------------------------------------------


def command_page(command: Command) -> str:
    """Write the page of a command."""
    is_top = len(command.words) == 1
    return page(
        Title(command.page, 1, DATE, SOURCE),
        [
            ("NAME", name_line(command.page, command.summary)),
            ("SYNOPSIS", synopsis(command)),
            ("DESCRIPTION", description(command)),
            ("ARGUMENTS", arguments(command)),
            ("OPTIONS", options(command)),
            ("COMMANDS", commands(command)),
            ("EXIT STATUS", paragraph(sentence(command.epilog)) if is_top else ""),
            ("FILES", files() if is_top else ""),
            ("ENVIRONMENT", environment() if is_top else ""),
            ("SEE ALSO", filled(", ".join(see_also(command)) + "\n")),
        ],
    )


def synopsis(command: Command) -> str:
    """Write how a command is typed."""
    parts = [
        "[" + " | ".join(map(option_text, group)) + "]"
        for group in command.alternatives()
    ]
    parts += map(positional_text, command.positionals())
    if command.below():
        parts.append(f"{italic('COMMAND')} ...")
    return filled(" ".join([bold(" ".join(command.words)), *parts]))


def option_text(action: argparse.Action) -> str:
    """Write an option as it is typed, with its value."""
    name = bold(action.option_strings[-1])
    return f"{name} {italic(value_of(action))}" if takes_value(action) else name


def positional_text(action: argparse.Action) -> str:
    """Write what is given without the name of an option, and how often."""
    form = MANY.get(str(action.nargs), "{}")
    return form.format(italic(value_of(action)))


def description(command: Command) -> str:
    """Write what a command does: its summary, and what its help ends with."""
    text = paragraph(sentence(command.summary))
    if not command.epilog or len(command.words) == 1:
        return text
    if command.keeps_lines:
        return f"{text}.PP\n{lines_kept(command.epilog)}"
    return f"{text}.PP\n{paragraph(command.epilog)}"


def arguments(command: Command) -> str:
    """Write the list of what is given without the names of options."""
    return "".join(
        tagged(italic(value_of(each)), sentence(command.help_of(each)))
        for each in command.positionals()
    )


def options(command: Command) -> str:
    """Write the list of options."""
    return "".join(
        tagged(_names(each), sentence(command.help_of(each)))
        for each in command.arguments()
        if each.option_strings
    )


def _names(action: argparse.Action) -> str:
    names = ", ".join(map(bold, action.option_strings))
    return f"{names} {italic(value_of(action))}" if takes_value(action) else names


def commands(command: Command) -> str:
    """Write the list of the commands below one."""
    return "".join(
        tagged(
            f"{bold(each.words[-1])}", f"{sentence(each.summary)} See `{each.page}(1)`."
        )
        for each in command.below()
    )


def see_also(command: Command) -> Iterator[str]:
    """Name the pages that belong to one: those above and below, and the configuration."""
    for n_words in range(1, len(command.words)):
        yield f"{bold('-'.join(command.words[:n_words]))}(1)"
    for each in command.below():
        yield f"{bold(each.page)}(1)"
    yield f"{bold(CONFIGURATION)}(5)"


def files() -> str:
    """Write the list of files."""
    return "".join(tagged(italic(path), text) for path, text in FILES)


def environment() -> str:
    """Write the list of variables."""
    return "".join(tagged(bold(name), text) for name, text in ENVIRONMENT)


def sentence(text: str) -> str:
    """Write a help text, which begins small and has no full stop, as a sentence."""
    text = " ".join(text.split())
    if not text:
        return ""
    end = "" if text.endswith((".", ":", "?")) else "."
    return text[0].upper() + text[1:] + end


# --- the configuration -----------------------------------------------------------------


def configuration_page() -> str:
    """Write the page of the configuration: all tables with all keys."""
    body = SETTINGS_INTRO.strip().splitlines()[1:]
    return page(
        Title(CONFIGURATION, 5, DATE, SOURCE),
        [
            ("NAME", name_line(CONFIGURATION, "configuration of inferd")),
            ("DESCRIPTION", _introduction(body).removeprefix(".PP\n")),
            *((re.sub("`", "", title), settings(struct)) for title, struct in tables()),
            ("SEE ALSO", f"{bold('inferd')}(1), {bold('inferd-config')}(1)\n"),
        ],
    )


def _introduction(lines: list[str]) -> str:
    """Write paragraphs, and the list of numbers as one."""
    blocks = [
        list(block) for is_text, block in itertools.groupby(lines, key=bool) if is_text
    ]
    return "".join(map(_block, blocks))


def _block(lines: list[str]) -> str:
    if not lines[0].startswith("1. "):
        return ".PP\n" + paragraph(" ".join(lines))
    entries = (line.split(". ", 1) for line in lines)
    return "".join(f".IP {number}. 4\n{paragraph(text)}" for number, text in entries)


def settings(struct: StructType) -> str:
    """Write what a table is for, and each of its keys."""
    docs = docs_of(struct.cls)
    keys = [
        tagged(bold(field.name), setting(field, docs[field.name]))
        for field in struct.fields
    ]
    if struct.tag_field:
        keys.insert(0, tagged(bold(struct.tag_field), f'`"{struct.tag}"`.'))
    return paragraph(first_line(struct.cls.__doc__)) + "".join(keys)


def setting(field: Field, text: str) -> str:
    """Write the type, the default and the meaning of a key."""
    default = default_text(field)
    shown = (
        f"; {default if field.required else f'default {default}'}" if default else ""
    )
    return f"({type_text(field.type)}{shown}) {text}"
