"""Which function carries a command out."""

from collections.abc import Callable, Mapping
from typing import Final

from inferd.cli.chat.commands import files, kept, model, turns
from inferd.cli.chat.commands.parsing import COMMANDS, CommandLine
from inferd.cli.chat.state import ChatState

_KEYS: Final = (
    ("Enter", "send"),
    ("Alt-Enter, Ctrl-J", "a new line; pastes keep theirs"),
    ("Ctrl-C", "stop the answer; empty the prompt"),
    ("Ctrl-D", "leave"),
    ("Up, Ctrl-R", "earlier prompts; search them"),
    ("//", "begin a prompt that begins with /"),
)
_WIDE: Final = 64
"""Columns from which on a command and its text stand in one line."""


def run(state: ChatState, line: CommandLine) -> None:
    """Carry a command out.

    Raises:
        CommandError: it cannot be.
        ClientError: the daemon has refused something.
    """
    _FUNCTIONS[line.name](state, line.argument)


def show_help(state: ChatState, _: str) -> None:
    """List the commands and keys."""
    rows = [(f"/{each.name} {each.argument}".strip(), each.text) for each in COMMANDS]
    for name, text in (*rows, *_KEYS):
        if state.painter.style.width >= _WIDE:
            state.painter.note(f"{name:<20} {text}", "")
        else:
            state.painter.note(name, "bold")
            state.painter.note(f"  {text}", "")


def leave(state: ChatState, _: str) -> None:
    """End the session."""
    state.is_ending = True


_FUNCTIONS: Final[Mapping[str, Callable[[ChatState, str], None]]] = {
    "audio": files.audio,
    "branch": turns.branch,
    "chats": kept.chats,
    "context": model.context,
    "delete": kept.delete,
    "edit": turns.edit,
    "export": kept.export,
    "file": files.file,
    "help": show_help,
    "image": files.image,
    "model": model.model,
    "new": kept.new,
    "open": kept.open_,
    "quit": leave,
    "regenerate": turns.regenerate,
    "search": kept.search,
    "system": model.system,
    "thinking": model.thinking,
    "title": kept.title,
    "tokens": model.tokens,
}
