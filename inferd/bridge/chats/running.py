"""An answer that is being generated, and those who follow it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from inferd.bridge.chats.events import PendingEvent
from inferd.chats.records import KeptMessage


@dataclass(eq=False)
class RunningAnswer:
    """An answer that is being generated here."""

    owner: str
    message: KeptMessage
    """As far as it is."""
    via: Sequence[str] = ()
    """The daemons that have passed on the request for it."""
    pending: PendingEvent = field(default_factory=PendingEvent)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Of its task."""
    storing: trio.CancelScope = field(
        default_factory=lambda: trio.CancelScope(shield=True)
    )
    """Of its task, while it stores how the answer ended."""
    is_stopped: bool = False
    """Whether somebody has stopped it, and the database says so."""
    is_written: bool = True
    """Whether the database has all of it."""
    _changed: trio.Event = field(default_factory=trio.Event)

    def change(
        self, message: KeptMessage | None = None, pending: PendingEvent | None = None
    ) -> None:
        """Take what is new, and wake those who follow."""
        if message is not None and message != self.message:
            self.message = message
            self.is_written = False
        if pending is not None:
            self.pending = pending
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()
