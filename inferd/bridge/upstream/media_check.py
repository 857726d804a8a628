"""Refuse pictures and sound that no model would take, before they are decoded; pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from inferd.bridge.translation.question import Question
from inferd.bridge.upstream.failures import NOT_SERVED
from inferd.client.frames import ClientErrorFrame
from inferd.errors import ErrorCode, ModelNotFoundError
from inferd.limits.protocol import MAX_LISTED_MODELS
from inferd.wire.offered_facts import OfferedFacts

_TAKES: Final[Mapping[str, tuple[str, Callable[[OfferedFacts], bool]]]] = {
    "picture": ("image attachments", lambda facts: facts.vision),
    "sound": (
        "audio attachments",
        lambda facts: facts.audio or facts.transcribe is True,
    ),
}
"""What the daemon calls the attachments of each kind, and who takes them."""


def named_model(
    question: Question, models: Sequence[OfferedFacts]
) -> OfferedFacts | None:
    """Return the model that a question names, by the first of its names that is served."""
    for name in (question.request.model, *question.other_names):
        for facts in models:
            if name == facts.backend or name in facts.aliases:
                return facts
    return None


def refusal_of_media(
    question: Question, models: Sequence[OfferedFacts]
) -> ClientErrorFrame | None:
    """Return the error that the daemon would answer with to the media of a question.

    Args:
        question: with or without media.
        models: all that the socket serves.

    Returns:
        ``None`` if a model takes them, or if that is not known before it is asked.
    """
    for kind in dict.fromkeys(medium.kind for medium in question.media):
        subject, takes = _TAKES[kind]
        able = [each for each in models if each.is_unread is True or takes(each)]
        model = question.request.model
        if model is None:
            if not able:
                text = f"no backend takes {subject}"
                return _frame(question, ErrorCode.ATTACHMENT_UNSUPPORTED, text)
            continue
        found = named_model(question, models)
        if found is None or found not in able:
            reason = NOT_SERVED if found is None else f"has no support for {subject}"
            names = [*_names(able)][:MAX_LISTED_MODELS]
            text = ModelNotFoundError(model, reason, names).message
            return _frame(question, ErrorCode.MODEL_NOT_FOUND, text)
    return None


def _names(models: Sequence[OfferedFacts]) -> Iterator[str]:
    for each in models:
        yield from (each.backend, *each.aliases)


def _frame(question: Question, code: ErrorCode, text: str) -> ClientErrorFrame:
    return ClientErrorFrame(id=question.request.id, code=code.value, message=text)
