"""Sound that follows a request: where it goes, and how it ends."""

import pytest
import trio
import trio.testing

from inferd.bridge.native.appended import AppendedLines
from inferd.bridge.translation.failures import BridgeError
from inferd.bridge.upstream.live_sound import LiveSound


class Sink:
    """Keeps what is appended."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, bool]] = []

    async def append(self, samples: bytes, *, is_last: bool = False) -> None:
        await trio.lowlevel.checkpoint()
        self.taken.append((len(samples), is_last))


LINE = b'{"type":"append","id":"r","attachment_id":"s","bytes":"AAAAAA=="}\n'


async def test_sound_waits_for_the_request_and_the_end_of_the_body_ends_it():
    sink, sound = Sink(), LiveSound(AppendedLines("r", "s"), LINE, max_s=60.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: sound.take(LINE, is_last=True))
        await trio.testing.wait_all_tasks_blocked()
        assert not sink.taken
        sound.opened(sink)
    assert sink.taken == [(4, False), (4, False), (0, True)]


async def test_more_sound_than_is_allowed_is_refused():
    sound = LiveSound(AppendedLines("r", "s"), b"", max_s=1e-5)
    sound.opened(Sink())
    with pytest.raises(BridgeError, match="over 1e-05 s"):
        await sound.take(LINE, is_last=False)
