"""Completions of the commands for bash, zsh and fish, which shtab writes."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import shtab

from inferd.cli import whole_parser
from tools.documents.arguments import Command, all_commands, value_of

SHELLS: Final = {
    "bash": "bash-completion/completions/inferd",
    "zsh": "zsh/site-functions/_inferd",
    "fish": "fish/vendor_completions.d/inferd.fish",
}
"""Shells, and where each looks for completions below a directory `share`."""


def completions() -> dict[str, str]:
    """Write the completions of all shells, by the names of their files."""
    parser = whole_parser()
    for action in _arguments(parser):
        if kind := _paths_of(action):
            action.complete = kind  # type: ignore[attr-defined]  # as shtab reads it
    return {
        path: shtab.complete(parser, shell=shell).rstrip() + "\n"
        for shell, path in SHELLS.items()
    }


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for command in all_commands(Command(("inferd",), "", parser)):
        yield from command.arguments()


def _paths_of(action: argparse.Action) -> Mapping[str, str | dict[str, str]] | None:
    """Tell which paths an argument takes, by the name or the type of its value."""
    value = value_of(action)
    if value.startswith("DIR"):
        return shtab.DIRECTORY
    if value.startswith("FILE") or action.type is Path or value.endswith("PATH"):
        return shtab.FILE
    return None
