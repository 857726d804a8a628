"""The record of an API: its translations in both directions, none of which does I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import GenerateJob
from inferd.config.kinds.remote import RemoteSettings
from inferd.ipc.worker import Ended
from inferd.worker.remote.failure import RemoteError

S_contra = TypeVar("S_contra", bound=RemoteSettings, contravariant=True)


class StreamReader(Protocol):
    """Reads the events of one answer."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected."""

    @property
    def n_pieces(self) -> int:
        """Parts of reasoning, text and calls so far, those that are written later included."""

    def read(self, data: bytes) -> Sequence[bytes]:
        """Read the data of an event; return the pieces of the answer in it.

        Raises:
            RemoteError: it is no part of an answer, or reports an error.
        """

    def finish(self) -> tuple[Sequence[bytes], Ended]:
        """Return the last pieces and the end, when the answer has ended.

        Raises:
            RemoteError: it ended in its middle.
        """


class ErrorReader(NamedTuple):
    """Reads what an API says of errors."""

    of_status: Callable[[int, Mapping[str, str], bytes, float], RemoteError]
    """Of an answer that is not 200: its status, its headers with names in lower case, its
    beginning, and the seconds since 1970."""
    of_answer: Callable[[bytes], RemoteError]
    """Of one that is 200, or of an event in it."""


@dataclass(frozen=True, kw_only=True)
class RemoteApi(Generic[S_contra]):
    """An API of remote engines."""

    name: str
    """For the doctor."""
    chat_path: str
    """Where requests for answers go, below the remote's own path."""
    write_request: Callable[[S_contra, GenerateJob], bytes]
    """Writes the body of a request; raises ``RefusedError`` for what the remote cannot do."""
    make_reader: Callable[[S_contra, int, GenerateJob, int], StreamReader]
    """Makes the reader of an answer: of a ticket and its job, with an estimate of the tokens
    of its prompt."""
    errors: ErrorReader
    capabilities: Callable[[S_contra], BackendCapabilities]
    """Says what a backend can do, as configured."""
