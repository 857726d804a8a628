"""Chats of earlier sessions."""

import os
import time
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from inferd.chats.documents import markdown, whole_chat
from inferd.chats.records import KeptChat
from inferd.cli.chat.commands.numbers import chosen
from inferd.cli.chat.history.chat_file import FILE_MODE
from inferd.cli.chat.history.folder import ChatFolder
from inferd.cli.chat.screen.transcript import show_branch
from inferd.cli.chat.state import ChatState
from inferd.cli.console import CommandError
from inferd.limits.bridge import EXCERPT_CHARS, MAX_TITLE_CHARS

_SHOWN: Final = 20
"""Chats that a list shows: some more than a small terminal has rows."""
_LIST_HINT: Final = "/chats lists them"
_US_PER_S: Final = 1_000_000


def chats(state: ChatState, _: str) -> None:
    """List the chats that are kept."""
    found = _folder(state).chats()
    state.listed = found[:_SHOWN]
    for place, chat in enumerate(state.listed, 1):
        is_current = chat.id == state.conversation.chat.id
        _line(state, f"{'*' if is_current else ' '} {place:>2}  {_named(chat)}")
    if len(found) > _SHOWN:
        state.painter.note(f"and {len(found) - _SHOWN} older ones: /search finds them")
    if not found:
        state.painter.note("no chats are kept yet")


def open_(state: ChatState, number: str) -> None:
    """Go on with a chat of the list."""
    if not state.listed:
        state.listed = _folder(state).chats()[:_SHOWN]
    state.open(chosen(state.listed, number, _LIST_HINT).id)
    show_branch(state.painter, state.conversation)
    state.tell_missing_model()


def new(state: ChatState, _: str) -> None:
    """Begin another chat."""
    state.begin()
    state.painter.note("a new chat")


def title(state: ChatState, text: str) -> None:
    """Name the chat."""
    if not text or len(text) > MAX_TITLE_CHARS:
        raise CommandError(f"a title has 1 to {MAX_TITLE_CHARS} characters")
    state.change(replace(state.conversation.chat, title=" ".join(text.split())))
    state.painter.note("named")


def search(state: ChatState, query: str) -> None:
    """Find messages in all chats."""
    if not query.split():
        raise CommandError("/search WORDS")
    hits = _folder(state).search(query)
    found: dict[str, KeptChat] = {}
    for hit in hits:
        found.setdefault(hit.chat.id, hit.chat)
    state.listed = [*found.values()]
    places = {chat_id: place for place, chat_id in enumerate(found, 1)}
    for hit in hits:
        words = _excerpt(hit.message.text, query)
        _line(state, f"{places[hit.chat.id]:>3}  {hit.chat.title or 'Chat'}: {words}")
    state.painter.note("/open N goes on with one" if hits else "nothing was found")


def export(state: ChatState, name: str) -> None:
    """Write the chat to a file, which must not exist."""
    path, conversation = Path(name).expanduser(), state.conversation
    match path.suffix.lower():
        case ".md":
            data = markdown(conversation.chat, conversation.branch).encode()
        case ".json":
            whole = whole_chat(conversation.chat, [*conversation.messages.values()])
            data = msgspec.json.format(msgspec.json.encode(whole))
        case _:
            raise CommandError("/export FILE.md (this branch) or FILE.json (all)")
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    state.painter.note(f"{path}: {len(data):,} bytes")


def delete(state: ChatState, number: str) -> None:
    """Delete the chat, or one of the list, for good."""
    folder, current = _folder(state), state.conversation.chat
    chat = chosen(state.listed, number, _LIST_HINT) if number else current
    if chat.id != current.id:
        file, conversation = folder.open(chat.id)  # refused while a session has it
        file.close()
    else:
        conversation = state.conversation
        state.begin()
    folder.delete(chat.id)
    state.listed = ()
    if state.prompts is not None:
        texts = [each.text for each in conversation.messages.values()]
        state.prompts.forget(texts)
    state.painter.note(f"deleted: {chat.title or 'Chat'}")


def _folder(state: ChatState) -> ChatFolder:
    if state.folder is None:
        raise CommandError("no chats are kept in this session")
    return state.folder


def _line(state: ChatState, text: str) -> None:
    state.painter.finish([state.painter.style.line(text)])


def _named(chat: KeptChat) -> str:
    at = time.localtime(chat.modified_us / _US_PER_S)
    return f"{time.strftime('%Y-%m-%d %H:%M', at)}  {chat.title or 'Chat'}"


def _excerpt(text: str, query: str) -> str:
    """Return the text around the first word that was looked for."""
    flat = " ".join(text.split())
    at = max(0, flat.casefold().find(query.casefold().split()[0]) - EXCERPT_CHARS // 4)
    return f"{'…' if at else ''}{flat[at : at + EXCERPT_CHARS]}"
