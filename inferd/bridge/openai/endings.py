"""The end of an answer: its reason in OpenAI's words, or a failure."""

from collections.abc import Mapping
from typing import Final

from inferd.bridge.translation.endings import stop_reason
from inferd.client.frames import ClientBlocksDone

_REASONS: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}


def finish_reason(done: ClientBlocksDone, *, was_enough: bool = False) -> str:
    """Return why the answer ended.

    Args:
        done: the end of the daemon's answer.
        was_enough: whether the bridge itself ended it, after a call; the daemon may have
            come to another end before it knew.

    Raises:
        BridgeError: it was cut by others than its own request.
    """
    return _REASONS[stop_reason(done, was_enough=was_enough)]
