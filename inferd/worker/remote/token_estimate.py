"""Estimates of the tokens of prompts, calibrated by what a remote counted of others."""

from typing import Final

from inferd.config.kinds.remote_limits import (
    CALIBRATION_BYTES,
    CALIBRATION_WEIGHT,
    MOST_BYTES_PER_TOKEN,
    PROMPT_BYTES_PER_TOKEN,
)

LEAST_BYTES_PER_TOKEN: Final = 1.0


class TokenEstimate:
    """The bytes of a token, as a moving average over the answers so far."""

    def __init__(self) -> None:
        self._bytes_per_token = float(PROMPT_BYTES_PER_TOKEN)

    def tokens(self, n_bytes: int) -> int:
        """Estimate the tokens of a prompt, of the bytes of its request."""
        return -int(-n_bytes // self._bytes_per_token)

    def note(self, n_bytes: int, n_tokens: int) -> None:
        """Note what a remote counted; a short prompt, or a count that cannot be, is skipped."""
        if n_bytes < CALIBRATION_BYTES or n_tokens < 1:
            return
        measured = n_bytes / n_tokens
        if LEAST_BYTES_PER_TOKEN <= measured <= MOST_BYTES_PER_TOKEN:
            self._bytes_per_token += CALIBRATION_WEIGHT * (
                measured - self._bytes_per_token
            )
