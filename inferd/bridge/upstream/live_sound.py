"""Sound that comes in the body of a request while it is answered."""

from contextlib import suppress

import trio

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import SoundReader, SoundSink
from inferd.client.core.failures import ClientError


class LiveSound:
    """Passes the sound of a body on to the daemon, as fast as that takes it.

    Args:
        reader: of the lines.
        begun: what has come behind the first line already.
        max_s: seconds of sound at most.

    Cancellation: closes the connection to the daemon, as part of a line may have been sent.
    """

    def __init__(self, reader: SoundReader, begun: bytes, max_s: float) -> None:
        self._reader = reader
        self._begun = begun
        self._left_s = max_s
        self._max_s = max_s
        self._sink: SoundSink | None = None
        self._has_sink = trio.Event()

    def opened(self, sink: SoundSink) -> None:
        """Note where the sound goes: the request has been sent there."""
        self._sink = sink
        self._has_sink.set()

    async def take(self, data: bytes, *, is_last: bool) -> None:
        """Take a part of the body; the end of the body ends the sound.

        Raises:
            BridgeError: it has something else in it, or too much sound.
        """
        data, self._begun = self._begun + data, b""
        for each in self._reader.read(data):
            self._left_s -= self._reader.seconds(each.samples)
            if self._left_s < 0:
                raise BridgeError(
                    Reason.TOO_LARGE, f"the sound has over {self._max_s:g} s"
                )
            await self._append(each.samples, is_last=each.is_last)
        if is_last and not self._reader.has_ended:
            await self._append(b"", is_last=True)

    async def _append(self, samples: bytes, *, is_last: bool) -> None:
        await self._has_sink.wait()
        assert self._sink is not None  # noqa: S101  # ``opened`` has it
        with suppress(ClientError, OSError):  # who reads the answer is told
            await self._sink.append(samples, is_last=is_last)
