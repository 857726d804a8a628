"""How long an answer may take."""

import trio

from inferd.config.kinds.remote import RemoteSettings


class AnswerDeadline:
    """How long an answer may take; the caller tells it of every token.

    Args:
        settings: with the seconds.
        scope: is cancelled when they are over.
    """

    def __init__(self, settings: RemoteSettings, scope: trio.CancelScope) -> None:
        self._settings = settings
        self._scope = scope
        self._ends_at = trio.current_time() + settings.answer_timeout_s
        self.has_begun = False
        """Whether there was a token."""
        self._wait(settings.connect_timeout_s + settings.first_token_timeout_s)

    def token_received(self) -> None:
        """Note that the answer goes on."""
        self.has_begun = True
        self._wait(self._settings.stall_timeout_s)

    @property
    def reason(self) -> str:
        """What took too long."""
        if trio.current_time() >= self._ends_at:
            return f"{self._settings.answer_timeout_s:g} s are over"
        if self.has_begun:
            return f"nothing came for {self._settings.stall_timeout_s:g} s"
        return f"no answer within {self._settings.first_token_timeout_s:g} s"

    def _wait(self, seconds: float) -> None:
        self._scope.deadline = min(trio.current_time() + seconds, self._ends_at)
