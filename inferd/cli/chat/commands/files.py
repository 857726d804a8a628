"""Pictures, recordings and texts that go with the next prompt."""

from pathlib import Path
from typing import Final

from inferd.chats.file_types import MediumKind
from inferd.cli.chat.questions import attach, takes
from inferd.cli.chat.state import ChatState
from inferd.cli.console import CommandError
from inferd.limits.protocol import MAX_ATTACHMENTS

MAX_TEXT_BYTES: Final = 1024 * 1024
"""Bytes of a text: more than most contexts take."""
MAX_TEXTS: Final = 16
"""Texts with one prompt."""
_WORDS: Final = {"picture": "pictures", "sound": "sound"}


def image(state: ChatState, name: str) -> None:
    """Send a picture with the next prompt."""
    _attach(state, name, "picture")


def audio(state: ChatState, name: str) -> None:
    """Send a recording with the next prompt."""
    _attach(state, name, "sound")


def _attach(state: ChatState, name: str, kind: MediumKind) -> None:
    state.look_up()
    if not takes(state.facts, kind):
        model = state.facts.name if state.facts else ""
        able = [each.name for each in state.served if takes(each, kind)]
        others = f"; {', '.join(able)} does" if able else ""
        raise CommandError(f"{model} takes no {_WORDS[kind]}{others}")
    if len(state.pending) >= MAX_ATTACHMENTS:
        raise CommandError(f"a prompt has at most {MAX_ATTACHMENTS} files")
    state.pending.append(attach(_path(name), kind))
    state.painter.note(f"{state.pending[-1].kept.name} goes with the next prompt")


def file(state: ChatState, name: str) -> None:
    """Send a text with the next prompt."""
    path = _path(name)
    if len(state.texts) >= MAX_TEXTS:
        raise CommandError(f"a prompt has at most {MAX_TEXTS} texts")
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_TEXT_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: is not UTF-8; /image and /audio?") from error
    if len(data) > MAX_TEXT_BYTES:
        raise CommandError(f"{path}: over {MAX_TEXT_BYTES:,} bytes")
    state.texts.append(as_text(path.name, text))
    state.painter.note(f"{path.name} goes with the next prompt")


def as_text(name: str, text: str) -> str:
    """Return a file as the part of a prompt that it is; pure."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{name}:\n{fence}\n{text.rstrip()}\n{fence}\n"


def _path(name: str) -> Path:
    if not name:
        raise CommandError("which file?")
    return Path(name).expanduser()
