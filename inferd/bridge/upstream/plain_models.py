"""Models that are known not to reason, so that they are not asked for it each time."""

from typing import Final

import trio
from msgspec.structs import replace

from inferd.bridge.translation.question import DaemonRequest, Question
from inferd.limits.bridge import MAX_PLAIN_MODELS, PLAIN_MODEL_S
from inferd.wire.blocks import BlocksRequest

_NEVER: Final = float("-inf")


class PlainModels:
    """Names of models that have refused to reason, each for a while.

    Bounds: ``MAX_PLAIN_MODELS``, each for ``PLAIN_MODEL_S``: a reload may replace a model.
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def add(self, model: str | None) -> None:
        """Note that a model does not reason."""
        if model is None:
            return
        now = trio.current_time()
        self._until = {name: end for name, end in self._until.items() if end > now}
        if len(self._until) < MAX_PLAIN_MODELS:
            self._until[model] = now + PLAIN_MODEL_S

    def without_reasoning(
        self, question: Question, request: DaemonRequest
    ) -> DaemonRequest:
        """Return a request as it is, or without reasoning that its model would refuse."""
        is_known = self._until.get(request.model or "", _NEVER) > trio.current_time()
        if is_known and question.reasons_if_able and isinstance(request, BlocksRequest):
            return replace(request, thinking=None)
        return request
