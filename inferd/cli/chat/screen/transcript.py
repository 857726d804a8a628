"""A chat of an earlier session on the screen."""

from typing import Final

from inferd.chats.records import KeptMessage
from inferd.cli.chat.conversation import Conversation
from inferd.cli.chat.screen.blocks import BlockSplitter
from inferd.cli.chat.screen.painter import Painter

MAX_SHOWN: Final = 20
"""Messages that are shown of a chat which is opened: its end, not all of it."""


def show_branch(painter: Painter, conversation: Conversation) -> None:
    """Show the end of the branch that a chat is in."""
    branch = conversation.branch
    if (n_hidden := len(branch) - MAX_SHOWN) > 0:
        painter.note(f"({n_hidden} earlier messages are not shown)")
    for message in branch[-MAX_SHOWN:]:
        show_message(painter, message)
    if not branch:
        painter.note("(the branch is empty)")


def show_message(painter: Painter, message: KeptMessage) -> None:
    """Show one message."""
    if message.role == "prompter":
        painter.finish(["", *_quoted(painter, message.text)])
        for each in message.attachments:
            painter.note(f"  + {each.name}")
    else:
        _show_answer(painter, message)


def _show_answer(painter: Painter, message: KeptMessage) -> None:
    if (cut := message.details.left_out) is not None:
        how = "are summarised" if cut.summary else "are left out"
        painter.note(f"(the oldest {cut.n_left_out} messages {how} from here on)")
    if message.thinking:
        painter.finish(["", painter.style.line(_thought(message), "dim")])
    show_markdown(painter, message.text)
    for call in message.details.calls:
        painter.note(f"calls {call.name}")
    if message.state in {"aborted_by_worker", "cancelled"}:
        painter.note("(this answer is not whole; /regenerate asks again)")


def show_markdown(painter: Painter, text: str) -> None:
    """Show a whole text."""
    splitter = BlockSplitter()
    for block in [*splitter.feed(text), splitter.rest]:
        if block.text.strip():
            lines = painter.style.markdown(block)
            painter.finish(lines if block.is_joined else ["", *lines])


def _quoted(painter: Painter, text: str) -> list[str]:
    lines = painter.style.plain(text, "bold") or [""]
    return [f"> {lines[0]}", *(f"  {line}" for line in lines[1:])]


def _thought(message: KeptMessage) -> str:
    return f"thought, {len(message.thinking):,} characters: /thinking shows it"
