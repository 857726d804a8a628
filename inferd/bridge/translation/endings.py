"""The end of an answer: the daemon's reason, or a failure."""

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.client.frames import ClientBlocksDone

_COMPLETE = ("end_turn", "stop_sequence", "max_tokens", "tool_use")


def stop_reason(done: ClientBlocksDone, *, was_enough: bool = False) -> str:
    """Return why an answer ended: one of the daemon's reasons but ``cancelled``.

    Args:
        done: the end of the daemon's answer.
        was_enough: whether the bridge itself ended it, after a call; the daemon may have
            come to another end before it knew.

    Raises:
        BridgeError: it was cut by others than its own request.
    """
    if was_enough:
        return "tool_use"
    if done.stop_reason in _COMPLETE:
        return done.stop_reason
    if done.detail == "deadline":
        raise BridgeError(Reason.DEADLINE, "the deadline of the request has passed")
    raise BridgeError(Reason.CANCELLED, "the request was cancelled before its end")
