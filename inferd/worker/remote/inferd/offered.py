"""The models that a daemon offers, on a socket or through its bridge."""

from collections.abc import Sequence
from typing import Final

from inferd.config.kinds.inferd import InferdSettings
from inferd.surfaces import EMBED, RERANK, V2
from inferd.wire.codec import encode
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.requests import DescribeRequest
from inferd.worker.remote.api import AnswerForm, RemoteModels, RemoteRequest
from inferd.worker.remote.inferd.frames import read_last
from inferd.worker.remote.inferd.request import REQUEST_ID

_LINE: Final = encode(DescribeRequest(id=REQUEST_ID))
_ROUTE: Final = "/inferd/models"


def models_of(settings: InferdSettings) -> RemoteModels:
    """Return how the models of a backend are listed."""
    surface = V2
    if not settings.generate and not settings.transcribe:
        surface = EMBED if settings.embed else RERANK
    path = surface.socket if settings.has_sockets else _ROUTE
    return RemoteModels(
        request=RemoteRequest(path, _LINE, AnswerForm.DOCUMENT), read=read_offered
    )


def read_offered(body: bytes) -> Sequence[str]:
    """Read the names of models, aliases included.

    Raises:
        RemoteError: it is no list of them.
    """
    models = read_last(body, "models").models or ()
    facts = [each for each in models if isinstance(each, OfferedFacts)]
    return [name for each in facts for name in (each.backend, *each.aliases)]
