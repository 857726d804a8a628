"""The conversation that leads to a message; pure."""

from collections.abc import Iterable, Sequence

from inferd.chats.failures import ChatError, ChatFault, no_message
from inferd.chats.records import KeptMessage


def branch_to(
    messages: Iterable[KeptMessage], last_id: str | None
) -> Sequence[KeptMessage]:
    """Return the messages from the first of a branch to its last.

    Args:
        messages: of a chat.
        last_id: of the last message; ``None`` gives an empty branch.

    Raises:
        ChatError: one is not there.
    """
    known = {message.id: message for message in messages}
    branch: list[KeptMessage] = []
    while last_id is not None:
        if last_id not in known or len(branch) >= len(known):
            raise no_message()
        branch.append(known[last_id])
        last_id = branch[-1].parent_id
    return branch[::-1]


def without_refused(branch: Sequence[KeptMessage]) -> Sequence[KeptMessage]:
    """Return a branch without the prompts that the filter has refused, and their answers."""
    followers = (*branch[1:], None)
    return [
        message
        for message, after in zip(branch, followers, strict=True)
        if not (after and after.has_refused_prompt)
        if not message.has_refused_prompt
    ]


def unpassed_texts(branch: Sequence[KeptMessage]) -> Sequence[str]:
    """Return the prompts of a branch that the filter has neither let pass nor refused.

    An answer may have ended before the filter had spoken of its prompt, and a chat may be
    imported, or older than the filter.

    Args:
        branch: the conversation, up to the prompt that is to be answered.
    """
    places = [at for at, message in enumerate(branch) if message.details.has_passed]
    new = branch[places[-1] + 1 :] if places else branch
    return [each.text for each in without_refused(new) if each.role == "prompter"]


def check_parent(parent: KeptMessage | None, *, answers: bool) -> None:
    """Check what a new message follows.

    Args:
        parent: the message before it; ``None`` for the first.
        answers: whether the new message is an answer.

    Raises:
        ChatError: it would follow a message of its own role, or one that is not finished.
    """
    if answers:
        if parent is None or parent.role != "prompter":
            raise ChatError(
                ChatFault.CONFLICT, "an answer follows a prompter message", "parent_id"
            )
        return
    if parent is None:
        return
    if parent.role != "assistant":
        raise ChatError(
            ChatFault.CONFLICT, "a prompter message follows an answer", "parent_id"
        )
    if parent.is_unfinished:
        raise ChatError(
            ChatFault.CONFLICT, "the answer before it has not ended", "parent_id"
        )
