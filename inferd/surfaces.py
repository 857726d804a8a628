"""The surfaces: one record for each kind of socket, which all that lists sockets goes by.

Here are their names and the facts of their sockets; ``server.services.endpoints`` adds what
answers on the inference sockets. Access rules, socket activation, units, log events, the
doctor, the client and the command line follow from these records.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

INFERENCE_MODE: Final = 0o660
ADMIN_MODE: Final = 0o600
NAME: Final = re.compile("[a-z][a-z0-9_]*")
SOCKET: Final = re.compile(r"[a-z][a-z0-9_.]*\.sock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """A kind of socket that clients speak to.

    Raises:
        ValueError: a name could not be part of a path, a unit's name or a log event.
    """

    name: str
    """Its key in ``[access]`` and, if it can be switched off, in ``[listen]``; with it begin
    or end the names of its units and log events."""
    socket: str
    """File name of the socket."""
    title: str
    """What it is for, as in the description of its unit."""
    wire_version: str = ""
    """Its protocol, as in log events and fields; empty if these do not name it."""
    mode: int = INFERENCE_MODE
    """Mode of the socket."""
    unit_group: str = "inferd"
    """Group of a socket that the system's systemd makes."""
    token_counts: tuple[str, ...] = ("input_tokens",)
    """Log fields for the number of tokens read and, if there is a second, written."""
    offers: str = ""
    """What the command line calls that which a backend with a capability of this
    surface's name offers."""
    example: str = ""
    """A command that uses it; words in capitals are to be replaced."""

    is_inference: bool = True
    """Whether it takes requests, rather than commands."""

    def __post_init__(self) -> None:
        if not (NAME.fullmatch(self.name) and SOCKET.fullmatch(self.socket)):
            raise ValueError(
                f"surface {self.name!r} cannot have socket {self.socket!r}"
            )

    @property
    def fd_name(self) -> str:
        """Its ``FileDescriptorName=`` in systemd's units."""
        return self.socket.removesuffix(".sock")


INFER: Final = Surface(
    name="infer",
    socket="infer.sock",
    title="text",
    token_counts=("prompt_tokens", "completion_tokens"),
    example="generate hi",
)
V2: Final = Surface(
    name="v2",
    socket="infer.v2.sock",
    title="typed blocks",
    wire_version="v2",
    token_counts=("input_tokens", "output_tokens"),
    example="transcribe FILE",
)
EMBED: Final = Surface(
    name="embed",
    socket="infer.embed.sock",
    title="embeddings",
    wire_version="embed",
    offers="embeddings",
    example="embed hello",
)
RERANK: Final = Surface(
    name="rerank",
    socket="infer.rerank.sock",
    title="documents ordered by a query",
    wire_version="rerank",
    offers="reranking",
    example="rerank hello world",
)
ADMIN: Final = Surface(
    name="admin",
    socket="admin.sock",
    title="status and commands",
    mode=ADMIN_MODE,
    unit_group="root",
    is_inference=False,
)

SURFACES: Final[Sequence[Surface]] = (INFER, V2, EMBED, RERANK, ADMIN)
"""All surfaces, in the order in which the inference sockets are bound."""


def check_surfaces(surfaces: Sequence[Surface]) -> None:
    """Check that no two surfaces have a name or a socket in common.

    Raises:
        ValueError: two have.
    """
    for values in (
        [each.name for each in surfaces],
        [each.socket for each in surfaces],
    ):
        if twice := {value for value in values if values.count(value) > 1}:
            raise ValueError(f"two surfaces are called {', '.join(sorted(twice))}")


def inference_surfaces(surfaces: Sequence[Surface] = SURFACES) -> list[Surface]:
    """List the surfaces that take requests."""
    return [each for each in surfaces if each.is_inference]
