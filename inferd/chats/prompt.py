"""What a model reads of a conversation: its messages; pure."""

from collections.abc import Callable, Sequence
from typing import Final

from inferd.chats.branches import without_refused
from inferd.chats.file_types import kind_of_medium
from inferd.chats.records import KeptAttachment, KeptMessage, LeftOut, WorkParameters
from inferd.chats.told_calls import told_calls
from inferd.wire.blocks import Block, Message, TextBlock
from inferd.wire.requests import Role

FileBlock = Callable[[KeptAttachment], Block | None]
"""Attaches a file to the request, and returns the block that refers to it; ``None`` for one
that is not sent."""

_ROLES: Final[dict[str, Role]] = {"prompter": "user", "assistant": "assistant"}
_KINDS: Final = {"picture": "picture", "sound": "recording"}
_SUMMARY: Final = "Summary of the earlier part of this conversation:"
_SUMMARISE: Final = (
    "Summarise the conversation above in at most 200 words, for somebody who goes on with it: what "
    "was asked, what was found out and decided, names and numbers. Write the summary alone."
)


def _not_sent(_: KeptAttachment) -> None:
    pass


def messages_of(  # noqa: PLR0913  # what a prompt depends on
    branch: Sequence[KeptMessage],
    work: WorkParameters,
    cut: LeftOut | None,
    *,
    so_far: KeptMessage | None = None,
    file_block: FileBlock = _not_sent,
    as_calls: bool = False,
) -> list[Message]:
    """Return the messages that ask for the next answer of a conversation.

    Args:
        branch: the conversation, up to the prompt that is to be answered.
        work: what the answer is asked for with.
        cut: what the model is not shown of it.
        so_far: the answer, whose calls have results.
        file_block: is called for each file that is shown, in their order; those that are
            not sent are named in words.
        as_calls: whether calls are told as such; they are texts to a model without tools.

    Raises:
        Exception: what ``file_block`` raises.
    """
    kept = branch[cut.n_left_out :] if cut else branch
    shown = [*kept, so_far] if so_far and so_far.details.calls else kept
    return [*_system(work, cut), *_turns(shown, file_block, as_calls=as_calls)]


def summary_messages(
    turns: Sequence[KeptMessage], earlier: str | None
) -> list[Message]:
    """Return the messages that ask for a summary of turns.

    Args:
        turns: of the conversation.
        earlier: the summary of what was before them.
    """
    asked = Message("user", [TextBlock(_SUMMARISE)])
    before = _turns(turns)
    if before and before[-1].role == "user":
        asked = Message("user", [*before.pop().content, TextBlock(_SUMMARISE)])
    system = [_system_text(f"{_SUMMARY} {earlier}")] if earlier else []
    return [*system, *before, asked]


def _system(work: WorkParameters, cut: LeftOut | None) -> list[Message]:
    texts = [work.system_prompt] if work.system_prompt else []
    if cut is not None and cut.summary:
        texts.append(f"{_SUMMARY} {cut.summary}")
    return [_system_text("\n\n".join(texts))] if texts else []


def _system_text(text: str) -> Message:
    return Message("system", [TextBlock(text)])


def _turns(
    messages: Sequence[KeptMessage],
    file_block: FileBlock = _not_sent,
    *,
    as_calls: bool = False,
) -> list[Message]:
    """Return the turns of a conversation, in which roles alternate.

    An empty answer is none, nor is a prompt that the filter has refused.
    """
    turns: list[Message] = []
    for message in without_refused(messages):
        if message.details.calls:
            parts = [*told_calls(message, as_calls=as_calls)]
        else:
            blocks = [_file(each, file_block) for each in message.attachments]
            blocks += [TextBlock(message.text)] if message.text else []
            parts = [Message(_ROLES[message.role], blocks)]
        for part in parts:
            if not part.content:
                continue
            if turns and turns[-1].role == part.role:
                turns[-1].content.extend(part.content)
            else:
                turns.append(part)
    return turns


def _file(attachment: KeptAttachment, file_block: FileBlock) -> Block:
    """Return the block of a file, which is named where it is not sent."""
    if (block := file_block(attachment)) is not None:
        return block
    kind = kind_of_medium(attachment.media_type)
    return TextBlock(f"[a {_KINDS[kind]}: {attachment.name}]")
