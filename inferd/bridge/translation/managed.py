"""What an API makes of a request to manage models: one of the helper, and its answer's form."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import msgspec
from msgspec import Struct

from inferd.bridge.identity.token import Scope
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.fields import FieldTable
from inferd.bridge.translation.question import StreamForm
from inferd.limits.bridge import MAX_STATED_CHARS
from inferd.wire.management import HelperCommand, HelperFrame, HelperRequest


class HelperAnswer(Protocol):
    """The form that an API gives to the frames of one answer of the helper."""

    def add(self, frame: HelperFrame) -> Iterator[bytes]:
        """Take a frame; yield the parts of a streamed answer that follow from it."""

    def end(self) -> Iterator[bytes]:
        """Yield the parts that end a streamed answer."""

    def whole(self) -> bytes:
        """Return the body of an answer that is not streamed, once all frames are added."""


@dataclass(frozen=True)
class ManagedQuestion:
    """A translated request to manage models."""

    request: HelperRequest
    answer: HelperAnswer
    is_streamed: bool = False
    failure_event: Callable[[BridgeError], bytes] | None = None
    """As of ``Question``."""
    content_type: str = "application/json"
    """Media type of an answer that is not streamed."""


class AskHelper(Protocol):
    """Translates a request."""

    def __call__(
        self, body: bytes, named: Mapping[str, str], principal: str
    ) -> ManagedQuestion:
        """Return what is asked of the helper.

        Args:
            body: of the request; empty where the route takes none.
            named: the parameters of the path.
            principal: who asks.

        Raises:
            BridgeError: the request is not valid.
        """


@dataclass(frozen=True, kw_only=True)
class ManagedOperation:
    """A route that is answered by the helper."""

    path: str
    method: str
    scope: Scope
    """What the token of a caller must allow: ``models`` or ``admin``."""
    summary: str
    """A sentence, without its full stop."""
    ask: AskHelper
    table: FieldTable | None = None
    """The fields of its requests; ``None`` where they have no body."""
    stream: StreamForm | None = None
    body: type[Struct] | None = None
    """The type of the honoured fields, for the description."""
    answer: object = dict[str, object]
    """The type of an answer that is not streamed, for the description."""
    texts: Sequence[str] = ()
    content_type: ClassVar[str] = "application/json"


def helper_request(  # noqa: PLR0913  # the fields of a request
    command: HelperCommand,
    principal: str,
    *,
    model: str = "",
    source: str = "",
    sha256: str | None = None,
    names: Mapping[str, str] | None = None,
) -> HelperRequest:
    """Return a request of the helper, whose rules for texts it keeps.

    Args:
        command: what is to be done.
        principal: who asks.
        model: its name.
        source: of a pull.
        sha256: of a pull.
        names: the API's names of these fields, where they differ.

    Raises:
        BridgeError: a text is too long, or has what it must not have.
    """
    fields = {
        "command": command,
        "principal": principal,
        "model": model,
        "source": source,
        "sha256": sha256,
    }
    try:
        return msgspec.convert(fields, HelperRequest)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        own = place.removesuffix("`")
        param = (names or {}).get(own, own)
        raise BridgeError(
            Reason.INVALID_REQUEST,
            f"{param}: {text}"[:MAX_STATED_CHARS],
            param=param,
        ) from error
