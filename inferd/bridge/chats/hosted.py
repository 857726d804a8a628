"""A request about chats, and what it gets of its form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from msgspec import Struct

from inferd.bridge.translation.api import HostedOperation
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.query import read_query

Q = TypeVar("Q", bound=Struct)


@dataclass(frozen=True)
class HostedRequest:
    """A request about chats."""

    operation: HostedOperation
    owner: str
    named: Mapping[str, str]
    """The parameters of the path."""
    query: bytes
    body: bytes

    @property
    def chat_id(self) -> str:
        """The chat that the path names."""
        return self.named["chat_id"]

    @property
    def message_id(self) -> str:
        """The message that the path names."""
        return self.named["message_id"]

    def fields(self, kind: type[Q]) -> Q:
        """Return the body with its type.

        Raises:
            BridgeError: it is refused.
        """
        table = self.operation.table
        assert table is not None  # noqa: S101  # the route has a body
        return read_body(self.body or b"{}", table, kind)

    def parameters(self, kind: type[Q]) -> Q:
        """Return what follows the path; raises as ``fields``."""
        return read_query(self.query, self.operation.query.table, kind)
