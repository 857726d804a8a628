"""The request that is sent instead of one that the daemon refuses; pure."""

from msgspec.structs import replace

from inferd.bridge.translation.question import DaemonRequest, Question
from inferd.bridge.upstream.failures import NO_REASONING, NOT_SERVED
from inferd.client.frames import ClientErrorFrame
from inferd.wire.blocks import BlocksRequest


def second_try(
    question: Question, refused: DaemonRequest, frame: ClientErrorFrame
) -> DaemonRequest | None:
    """Return the request that may be served in place of one that is refused.

    A model that does not reason answers without reasoning, where that is enough; a name that
    is not served is tried in its other forms. Each of these is tried once.

    Args:
        question: with what may be changed.
        refused: the request.
        frame: the refusal.

    Returns:
        ``None`` where the refusal is final.
    """
    if frame.code != "model_not_found":
        return None
    if is_plain(question, refused, frame) and isinstance(refused, BlocksRequest):
        return replace(refused, thinking=None)
    if not is_unserved(frame):
        return None
    names = [question.request.model, *question.other_names]
    left = names[names.index(refused.model) + 1 :]
    return replace(refused, model=left[0]) if left else None


def is_unserved(frame: ClientErrorFrame) -> bool:
    """Tell whether a request is refused because no model has the name."""
    return frame.code == "model_not_found" and f" {NOT_SERVED}; " in frame.message


def is_plain(
    question: Question, refused: DaemonRequest, frame: ClientErrorFrame
) -> bool:
    """Tell whether a request is refused for reasoning that it can do without."""
    return (
        question.reasons_if_able
        and isinstance(refused, BlocksRequest)
        and bool(refused.thinking)
        and f" {NO_REASONING}; " in frame.message
    )
