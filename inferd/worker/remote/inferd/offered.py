"""The models that a daemon's socket offers."""

from collections.abc import Sequence
from typing import Final

from inferd.wire.codec import encode
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.requests import DescribeRequest
from inferd.worker.remote.inferd.frames import read_last
from inferd.worker.remote.inferd.request import REQUEST_ID

DESCRIBE_LINE: Final = encode(DescribeRequest(id=REQUEST_ID))


def read_offered(body: bytes) -> Sequence[str]:
    """Read the names of models, aliases included.

    Raises:
        RemoteError: it is no list of them.
    """
    models = read_last(body, "models").models or ()
    facts = [each for each in models if isinstance(each, OfferedFacts)]
    return [name for each in facts for name in (each.backend, *each.aliases)]
