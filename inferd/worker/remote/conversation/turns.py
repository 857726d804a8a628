"""Turns of a conversation, as APIs want them that are stricter than OpenAI's."""

from collections.abc import Iterator, Sequence
from itertools import takewhile

import msgspec

from inferd.backend.job import GenerateJob, PastCall, Turn
from inferd.worker.backend import RefusedError


class SplitTurns:
    """A conversation whose system messages at its beginning are kept apart.

    Args:
        job: that has it.
    """

    def __init__(self, job: GenerateJob) -> None:
        leading = [
            *takewhile(lambda turn: turn.role == "system", job.turns),
        ]
        self.system = [turn.text for turn in leading]
        """The texts of the messages at the beginning."""
        self.turns: Sequence[Turn] = job.turns[len(leading) :]
        """All other messages."""


class CallNumbers:
    """Numbers of the calls in a conversation; each result belongs to one.

    The ids of calls begin anew with each answer, and APIs want each one once.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, tuple[int, str]] = {}
        self._n_calls = 0

    def add(self, call: PastCall) -> int:
        """Count a call; return its number."""
        number = self._n_calls
        self._n_calls += 1
        self._by_id[call.id] = number, call.name
        return number

    def find(self, turn: Turn) -> tuple[int, str]:
        """Return the number and the function of the call that a result belongs to.

        Raises:
            RefusedError: there is none before it.
        """
        found = self._by_id.get(turn.call_id)
        if found is None:
            raise RefusedError("messages: the result of a tool belongs to no call")
        return found


def arguments_of(call: PastCall) -> msgspec.Raw:
    """Return the arguments of an earlier call, an object.

    Raises:
        RefusedError: they are none.
    """
    text = call.arguments.strip() or "{}"
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        reason = "messages: the arguments of an earlier call are no JSON object"
        raise RefusedError(reason) from None
    return msgspec.Raw(text.encode())


def split_images(
    job: GenerateJob, text: str, images: Iterator[bytes]
) -> Iterator[str | bytes]:
    """Split a text at the markers of images; yield texts that are not empty, and images.

    Args:
        job: with the marker.
        text: of one of its turns.
        images: that follow in the conversation, from this turn on.
    """
    if not job.marker:
        first, others = text, []
    else:
        first, *others = text.split(job.marker)
    if first:
        yield first
    for after in others:
        yield next(images)
        if after:
            yield after
