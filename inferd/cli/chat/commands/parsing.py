"""The commands of a chat, and what a line asks for; pure."""

import difflib
from dataclasses import dataclass
from typing import Final

from inferd.cli.console import CommandError

MARK: Final = "/"


@dataclass(frozen=True)
class CommandHelp:
    """A command, as its help tells it."""

    name: str
    argument: str
    text: str


COMMANDS: Final = (
    CommandHelp("help", "", "list the commands and keys"),
    CommandHelp("model", "[NAME]", "list the models; go on with another"),
    CommandHelp("system", "[TEXT | -]", "show, set or remove the system message"),
    CommandHelp(
        "thinking", "[on | off]", "show the last reasoning; ask for it, or not"
    ),
    CommandHelp("image", "FILE", "send a picture with the next prompt"),
    CommandHelp("audio", "FILE", "send a recording with the next prompt"),
    CommandHelp("file", "FILE", "send a text with the next prompt"),
    CommandHelp("regenerate", "", "have the last prompt answered again"),
    CommandHelp("edit", "", "change the last prompt; the old one stays as a branch"),
    CommandHelp("branch", "[N]", "list the branches; go on with another"),
    CommandHelp("tokens", "", "count what the chat takes of the context"),
    CommandHelp(
        "context",
        "[omit | summarise | refuse]",
        "what becomes of the oldest turns when the context is full",
    ),
    CommandHelp("new", "", "begin another chat"),
    CommandHelp("chats", "", "list the chats that are kept"),
    CommandHelp("open", "N", "go on with a chat of the list"),
    CommandHelp("title", "TEXT", "name this chat"),
    CommandHelp("search", "WORDS", "find messages in all chats"),
    CommandHelp("export", "FILE", "write this chat: FILE.md or FILE.json"),
    CommandHelp("delete", "[N]", "delete this chat, or one of the list, for good"),
    CommandHelp("quit", "", "leave; so does Ctrl-D"),
)
NAMES: Final = tuple(each.name for each in COMMANDS)


@dataclass(frozen=True)
class CommandLine:
    """A command with its argument."""

    name: str
    argument: str


def parse(text: str) -> CommandLine | str:
    """Read what was typed: a command, or the prompt that it is.

    ``//`` begins a prompt that begins with ``/``. The beginning of a name is enough, if it is
    that of one command alone.

    Raises:
        CommandError: there is no such command.
    """
    if not text.startswith(MARK):
        return text
    if text.startswith(MARK * 2):
        return text[1:]
    first, _, rest = text[1:].partition(" ")
    name = first.strip()
    meant = [each for each in NAMES if each.startswith(name)] if name else []
    if name in NAMES:
        meant = [name]
    if len(meant) == 1:
        return CommandLine(meant[0], rest.strip())
    raise CommandError(_unknown(name, meant))


def as_typed(prompt: str) -> str:
    """Return what to type for a prompt: the reverse of `parse`."""
    return MARK + prompt if prompt.startswith(MARK) else prompt


def _unknown(name: str, meant: list[str]) -> str:
    close = meant or difflib.get_close_matches(name, NAMES, 3)
    shown = f"/{name[:40]}"
    if close:
        return f"{shown}: did you mean {' or '.join(f'/{each}' for each in close)}?"
    return f"{shown}: no such command; /help lists them, and // begins a prompt with /"
