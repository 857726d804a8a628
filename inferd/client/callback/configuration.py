"""The configuration of a client that calls back."""

from dataclasses import dataclass, field
from typing import Final

SILENCE_S: Final = 60.0
"""Seconds of silence after which a request has timed out, unless configured: longer than a
long prompt takes on a fast machine; who waits in a program's window waits no longer."""
REQUEST_S: Final = 600.0
"""Seconds after which a request has timed out, however much has come, unless configured."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What holds for each request from ``configure`` on.

    Args:
        model: which must answer; empty for the server's choice.
        temperature: in place of each request's; 0 is sent as 0.
        seed: of the sampler; ``None`` sends none.
        timeout_s: of silence until a request has timed out.
        request_timeout_s: until a request has timed out, however much has come.
        token: who asks, over HTTP; ``None`` for none.

    Raises:
        ValueError: a number is out of range.
    """

    model: str = ""
    temperature: float | None = None
    seed: int | None = None
    timeout_s: float = SILENCE_S
    request_timeout_s: float = REQUEST_S
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.timeout_s <= 0 or self.request_timeout_s <= 0:
            raise ValueError("timeout_s and request_timeout_s must be above 0")
