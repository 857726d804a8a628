"""A chat with all its branches, as it is in memory; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from inferd.chats.branches import branch_to
from inferd.chats.records import (
    AnswerFailure,
    KeptChat,
    KeptMessage,
    MessageDetails,
    storable,
)


@dataclass
class Conversation:
    """A chat and its messages.

    Ownership: who changes it writes what has changed to its file.
    """

    chat: KeptChat
    messages: dict[str, KeptMessage] = field(default_factory=dict)
    """By their ids, the oldest first."""
    paths: dict[str, Path] = field(default_factory=dict)
    """Where the files of attachments were, by the ids of these."""

    @property
    def branch(self) -> Sequence[KeptMessage]:
        """The messages that lead to the last one."""
        return branch_to(self.messages.values(), self.chat.tail_id)

    @property
    def last_prompt(self) -> KeptMessage | None:
        """The last prompt of the branch."""
        return _last(self.branch, "prompter")

    @property
    def last_answer(self) -> KeptMessage | None:
        """The last answer of the branch."""
        return _last(self.branch, "assistant")

    @property
    def parent_of_next(self) -> str | None:
        """The id of what the next prompt follows: the last answer."""
        answer = self.last_answer
        return answer.id if answer else None

    def put(self, message: KeptMessage) -> None:
        """Add a message, or replace it."""
        self.messages[message.id] = message

    def note_path(self, attachment_id: str, path: str) -> None:
        """Note where the file of an attachment is."""
        self.paths[attachment_id] = Path(path)

    def go_to(self, message_id: str | None, now_us: int) -> KeptChat:
        """Make a message the last one; return the chat as it is then."""
        self.chat = replace(self.chat, tail_id=message_id, modified_us=now_us)
        return self.chat

    def tails(self) -> Sequence[KeptMessage]:
        """Return the last messages of all branches, the oldest branch first."""
        parents = {each.parent_id for each in self.messages.values()}
        return [each for each in self.messages.values() if each.id not in parents]


def _last(branch: Sequence[KeptMessage], role: str) -> KeptMessage | None:
    return next((each for each in reversed(branch) if each.role == role), None)


def with_part(message: KeptMessage, text: str, thinking: str) -> KeptMessage:
    """Return an answer with more of it."""
    return replace(
        message,
        text=message.text + storable(text),
        thinking=message.thinking + storable(thinking),
    )


def broken_off(message: KeptMessage, why: str) -> KeptMessage:
    """Return an answer that was not finished, with the reason."""
    details = replace(message.details, failure=AnswerFailure("broken_off", why))
    return replace(message, state="aborted_by_worker", details=details)


def new_message(  # noqa: PLR0913  # the fields of a message
    conversation: Conversation,
    *,
    message_id: str,
    now_us: int,
    parent_id: str | None,
    is_prompt: bool,
    text: str = "",
    details: MessageDetails | None = None,
) -> KeptMessage:
    """Make a message of a chat: a prompt, or an answer that has not begun."""
    return KeptMessage(
        id=message_id,
        chat_id=conversation.chat.id,
        parent_id=parent_id,
        role="prompter" if is_prompt else "assistant",
        state="manual" if is_prompt else "in_progress",
        created_us=now_us,
        text=storable(text),
        details=details or MessageDetails(),
    )
