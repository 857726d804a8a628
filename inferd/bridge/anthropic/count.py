"""The answer to a request that counts the tokens of a prompt."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from inferd.bridge.translation.generated import stop_reason
from inferd.bridge.translation.question import DaemonFrame
from inferd.client.frames import ClientBlocksDone


class TokenCount(Struct, frozen=True):
    """The body of the answer."""

    input_tokens: int


class CountAnswer:
    """The number of a prompt's tokens."""

    has_enough = False
    n_tokens = 0
    """Nothing is computed."""

    def __init__(self) -> None:
        self._n_input = 0

    def add(self, frame: DaemonFrame) -> Iterator[bytes]:
        """Take a frame; there are no events.

        Raises:
            BridgeError: the count did not come to its end.
        """
        if isinstance(frame, ClientBlocksDone):
            stop_reason(frame)
            self._n_input = frame.usage.input_tokens
        yield from ()

    def end(self) -> Iterator[bytes]:
        """Yield nothing: it is not streamed."""
        yield from ()

    def whole(self) -> bytes:
        """Return the count."""
        return msgspec.json.encode(TokenCount(self._n_input))
