"""The answers of the helper, as objects or lines of JSON."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.bridge.openai.failures import failure_body
from inferd.bridge.translation.failures import BridgeError
from inferd.wire.management import (
    HelperDone,
    HelperFrame,
    ManagedBackend,
    ManagedLog,
    ManagedMachine,
    ManagedModel,
    helper_line,
)


class ModelListing(Struct, frozen=True):
    """The models of the store."""

    models: Sequence[ManagedModel]


class BackendListing(Struct, frozen=True):
    """The backends of the daemon."""

    backends: Sequence[ManagedBackend]


class LinesForm:
    """The form of streams: lines of JSON."""

    content_type = "application/x-ndjson"
    keep_alive = b'{"type":"waiting"}\n'

    def failure_event(self, failure: BridgeError) -> bytes:
        """Return the line that ends a stream that fails."""
        return b'{"type":"error",%b\n' % failure_body(failure).removeprefix(b"{")


class ManagedAnswer:
    """The frames of an answer, each a line; or what they say, as one object."""

    def __init__(self) -> None:
        self._models: list[ManagedModel] = []
        self._backends: list[ManagedBackend] = []
        self._done = HelperDone()

    def add(self, frame: HelperFrame) -> Iterator[bytes]:
        """Take a frame; yield its line."""
        match frame:
            case ManagedModel():
                self._models.append(frame)
            case ManagedBackend():
                self._backends.append(frame)
            case HelperDone():
                self._done = frame
            case _:
                pass
        yield helper_line(frame)

    def end(self) -> Iterator[bytes]:
        """Yield nothing: the last frame is the end."""
        yield from ()

    def whole(self) -> bytes:
        """Return what was done."""
        return msgspec.json.encode(self._done)


class ModelListAnswer(ManagedAnswer):
    """The models of the store."""

    def whole(self) -> bytes:
        """Return the list."""
        return msgspec.json.encode(ModelListing(self._models))


class ModelAnswer(ManagedAnswer):
    """One model of the store."""

    def whole(self) -> bytes:
        """Return the model."""
        return msgspec.json.encode(self._models[0])


class BackendListAnswer(ManagedAnswer):
    """The backends of the daemon."""

    def whole(self) -> bytes:
        """Return the list."""
        return msgspec.json.encode(BackendListing(self._backends))


class ToldAnswer(ManagedAnswer):
    """What one frame says."""

    def add(self, frame: HelperFrame) -> Iterator[bytes]:
        """Take a frame; yield its line."""
        if isinstance(frame, ManagedMachine | ManagedLog):
            self._frame = frame
        return super().add(frame)

    def whole(self) -> bytes:
        """Return the frame."""
        return msgspec.json.encode(self._frame)


LINES: Final = LinesForm()
