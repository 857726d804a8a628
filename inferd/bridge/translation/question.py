"""What an API makes of a request: a request of the daemon, and the form of its answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self

import msgspec

from inferd.bridge.translation.failures import BridgeError
from inferd.bridge.translation.media import EncodedMedium
from inferd.client.frames import ClientBlocksDone
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, RerankRequest
from inferd.wire.responses import (
    BlockFrame,
    EmbeddingsFrame,
    ProgressFrame,
    RerankFrame,
)

DaemonRequest = BlocksRequest | EmbedRequest | RerankRequest
DaemonFrame = (
    BlockFrame | ClientBlocksDone | EmbeddingsFrame | ProgressFrame | RerankFrame
)


class Answer(Protocol):
    """The form that an API gives to the frames of one answer."""

    @property
    def has_enough(self) -> bool:
        """Whether the daemon need not go on: the rest would not be part of the answer."""

    @property
    def n_tokens(self) -> int:
        """Tokens that the answer has cost, of its prompt and generated."""

    def add(self, frame: DaemonFrame) -> Iterator[bytes]:
        """Take a frame; yield the events of a streamed answer that follow from it.

        Raises:
            BridgeError: the answer ends without being complete.
        """

    def end(self) -> Iterator[bytes]:
        """Yield the events that end a streamed answer."""

    def whole(self) -> bytes:
        """Return the body of an answer that is not streamed, once all frames are added."""


class StreamForm(Protocol):
    """The form of an API's streams."""

    content_type: str
    """Media type of a streamed answer."""
    keep_alive: bytes
    """Bytes without meaning, for a stream that would be silent."""

    def failure_event(self, failure: BridgeError) -> bytes:
        """Return the event that ends a stream whose status line is sent already."""


class AppendedSamples(NamedTuple):
    """A part of a recording that is still being made."""

    samples: bytes
    is_last: bool


class SoundReader(Protocol):
    """Reads the sound that follows a request in its body."""

    @property
    def has_ended(self) -> bool:
        """Whether the sound has said that no more follows."""

    def read(self, data: bytes) -> Iterator[AppendedSamples]:
        """Take bytes; yield the sound in them.

        Raises:
            BridgeError: something else is in them.
        """

    def seconds(self, samples: bytes) -> float:
        """Return how long a part of the recording is."""


class SoundSink(Protocol):
    """Takes the sound of a request that has been sent."""

    async def append(self, samples: bytes, *, is_last: bool = False) -> None:
        """Append sound; waits while there is enough."""


class SoundSource(Protocol):
    """Has the sound of a request, as it comes."""

    def opened(self, sink: SoundSink) -> None:
        """Note where the sound goes: the request has been sent there."""

    async def take(self, data: bytes, *, is_last: bool) -> None:
        """Take a part of the body.

        Raises:
            BridgeError: it has something else in it.
        """


@dataclass(frozen=True)
class Question:
    """A translated request."""

    request: DaemonRequest
    answer: Answer
    is_streamed: bool = False
    failure_event: Callable[[BridgeError], bytes] | None = None
    """The event that ends this answer's stream if it fails, where that depends on what was
    sent before; else the form of the API's streams has it."""
    field_names: Mapping[str, str] = field(default_factory=dict)
    """The API's names of fields that the daemon names in another way."""
    media: Sequence[EncodedMedium] = ()
    """Files that blocks of the request refer to; its ``attachments`` are made of them."""
    appended: SoundReader | None = None
    """Reads what follows the request in its body, while it is answered."""
    sound: SoundSource | None = None
    """What comes there."""
    content_type: str = "application/json"
    """Media type of an answer that is not streamed."""
    other_names: Sequence[str] = ()
    """Names of the same model, which is asked for by these where the first is not served."""
    reasons_if_able: bool = False
    """Whether the answer may come without the reasoning that the request asks for, where its
    model does not reason."""
    unenforced: str = ""
    """The places of what is asked for and not enforced, which a header tells."""

    def passed_on_by(self, via: Sequence[str]) -> Self:
        """Return it with the daemons that have passed it on, by which loops are found."""
        if not via:
            return self
        request: DaemonRequest = msgspec.structs.replace(self.request, via=[*via])
        return replace(self, request=request)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a translation is told beside the body."""

    request_id: str
    """Id of the request, which also the daemon's log has."""
    created_s: int
    """Seconds since 1970."""
    default_max_tokens: int
    """Tokens of an answer for which the request sets no bound."""
