"""What is left out of a conversation that does not fit; pure.

The oldest turns go first, each as a whole: a prompt with its answers, their calls and results.
The last prompt always stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from inferd.chats.records import KeptMessage, LeftOut
from inferd.limits.bridge import ATTACHMENT_CHARS, MAX_ASKED_FILE_BYTES
from inferd.limits.protocol import MAX_ATTACHMENTS

_HEADROOM: Final = 4
"""A quarter of the context is made free at once: with less, each further answer would have
to leave something out, and the model's cache of the beginning would be lost each time."""


@dataclass(frozen=True)
class TokenExcess:
    """How far a prompt does not fit."""

    n_tokens: int
    """Of the prompt, as far as it was counted."""
    n_ctx: int
    n_over: int
    """Tokens to remove."""


def earlier_cut(branch: Sequence[KeptMessage]) -> LeftOut | None:
    """Return what the latest answer of a branch was not shown, if it was not shown all."""
    for message in reversed(branch):
        if message.role == "assistant":
            return message.details.left_out
    return None


def cut_after(
    branch: Sequence[KeptMessage], n_left_out: int, overflow: TokenExcess
) -> int | None:
    """Decide how many messages to leave out.

    Args:
        branch: the conversation, up to the prompt that is to be answered.
        n_left_out: of the oldest, with which it did not fit.
        overflow: by how much.

    Returns:
        A greater number; ``None`` if nothing is left that may go.
    """
    sizes = [size_of(message) for message in branch]
    n_chars = sum(sizes[n_left_out:])
    wanted = overflow.n_over + overflow.n_ctx // _HEADROOM
    n_to_go = n_chars * wanted / max(overflow.n_tokens, wanted, 1)
    starts = [
        place
        for place, message in enumerate(branch)
        if message.role == "prompter" and place > n_left_out
    ]
    for start in starts:
        if sum(sizes[n_left_out:start]) >= n_to_go:
            return start
    return starts[-1] if starts else None


def size_of(message: KeptMessage) -> int:
    """Return the characters of a message, and what counts as much."""
    n_results = sum(len(call.result or "") for call in message.details.calls)
    n_files = ATTACHMENT_CHARS * len(message.attachments)
    return len(message.text) + 1 + n_results + n_files


def cut_files(branch: Sequence[KeptMessage], n_left_out: int) -> int:
    """Decide how many messages to leave out for the files of the others.

    Args:
        branch: the conversation, up to the prompt that is to be answered.
        n_left_out: of the oldest, in any case.

    Returns:
        As many or more; the last prompt stays with all that it has.
    """
    n_files = n_bytes = 0
    start = len(branch)
    for place in reversed(range(n_left_out, len(branch))):
        attached = branch[place].attachments
        n_files += len(attached)
        n_bytes += sum(each.n_bytes for each in attached)
        if n_files > MAX_ATTACHMENTS or n_bytes > MAX_ASKED_FILE_BYTES:
            break
        if branch[place].role == "prompter" or place == n_left_out:
            start = place
    return min(start, len(branch) - 1)


def left_out(
    branch: Sequence[KeptMessage], n_left_out: int, summary: str | None = None
) -> LeftOut | None:
    """Return the mark of what was left out; ``None`` for nothing."""
    if not n_left_out:
        return None
    return LeftOut(
        n_left_out=n_left_out, first_kept=branch[n_left_out].id, summary=summary
    )


def newest_turns(
    turns: Sequence[KeptMessage], asked: Sequence[KeptMessage], share: float
) -> Sequence[KeptMessage]:
    """Return the newest of some turns that fit in a share of what was asked.

    Args:
        turns: to choose from.
        asked: of which a share fits.
        share: of its characters.
    """
    n_chars = share * sum(len(each.text) for each in asked)
    kept: list[KeptMessage] = []
    for message in reversed(turns):
        n_chars -= len(message.text)
        if n_chars < 0 and kept:
            break
        kept.append(message)
    return kept[::-1]
