"""The request that is sent instead of one that the daemon refuses; pure."""

from typing import TypeGuard

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
    is not served is tried in its other forms. What stays refused is asked again without
    reasoning, so that the refusal names all models that can answer, and not those that reason.
    Each of these is tried once.

    Args:
        question: with what may be changed.
        refused: the request.
        frame: the refusal.

    Returns:
        ``None`` where the refusal is final.
    """
    if frame.code != "model_not_found":
        return None
    names = [question.request.model, *question.other_names]
    if is_unserved(frame):
        left = names[names.index(refused.model) + 1 :]
        if left:
            return replace(refused, model=left[0])
        again = names[0]
    else:
        again = refused.model
    if _may_be_plain(question, refused):
        return replace(refused, model=again, thinking=None)
    return None


def is_unserved(frame: ClientErrorFrame) -> bool:
    """Tell whether a request is refused because no model has the name."""
    return frame.code == "model_not_found" and f" {NOT_SERVED}; " in frame.message


def is_plain(
    question: Question, refused: DaemonRequest, frame: ClientErrorFrame
) -> bool:
    """Tell whether a request is refused for reasoning that it can do without."""
    return _may_be_plain(question, refused) and f" {NO_REASONING}; " in frame.message


def _may_be_plain(
    question: Question, refused: DaemonRequest
) -> TypeGuard[BlocksRequest]:
    """Tell whether a request asks for reasoning that it can do without."""
    return (
        question.reasons_if_able
        and isinstance(refused, BlocksRequest)
        and bool(refused.thinking)
    )
