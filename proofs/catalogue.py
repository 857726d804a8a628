"""The list, in its order."""

from collections.abc import Sequence
from typing import Final

from proofs import (
    chats_kills,
    client_kills,
    described_routes,
    first_answer,
    fleet,
    llama_server,
    long_chat,
    published_routes,
    pulls,
    remote_faults,
    remote_servers,
)
from torture.catalogue import Item

PROOFS: Final[Sequence[Item]] = (
    pulls,
    first_answer,
    llama_server,
    described_routes,
    published_routes,
    remote_faults,
    remote_servers,
    client_kills,
    chats_kills,
    long_chat,
    fleet,
)
BY_KEY: Final = {proof.KEY: proof for proof in PROOFS}
