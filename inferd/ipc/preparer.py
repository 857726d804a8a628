"""Messages between the daemon and a preparer; ``encoding`` turns them into bytes.

A preparer is the process that does, for one model's requests, all work that is not linear
in what a client sent: it renders chat templates, and translates and compiles grammars. It
processes clients' texts with native code, so the daemon trusts it no more than a worker.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from inferd.backend.job import GenerateJob, RenderedJob
from inferd.ipc.worker import BoundedText, Ticket

Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
"""The SHA-256 of a grammar."""

FORK_EXITED: Final = b"."
"""Written to a preparer's stdout, which its forks do not inherit, when a fork exits."""


# --- daemon to preparer -------------------------------------------------------


class Configure(Struct, frozen=True, kw_only=True, tag=True):
    """Configure the preparer for a model; the first message, answered by ``Ready``."""

    prompt_format: bytes
    """As its worker sent it in ``Loaded``."""
    token_table: bytes = b""
    """As in ``TokenTableReply``; without it no grammar is compiled."""


class Render(Struct, frozen=True, kw_only=True, tag=True):
    """Render a job's prompt and grammar, and compile the grammar.

    Answered by ``JobReceived``, by ``CompilingGrammar`` for each grammar that is compiled,
    and then by one of ``Rendered``, ``RenderRefused``, ``RenderFailed`` and ``ForkExited``.
    """

    ticket: int
    job: GenerateJob
    known_grammars: tuple[Digest, ...] = ()
    """Grammars that need not be compiled again."""
    content: Raw | UnsetType = UNSET
    """The large part of the job, as in ``Prepare``."""


ToPreparer = Configure | Render


# --- preparer to daemon -------------------------------------------------------


class Ready(Struct, frozen=True, kw_only=True, tag=True):
    """The preparer takes jobs."""


class JobReceived(Struct, frozen=True, kw_only=True, tag=True):
    """A job was read completely, so that the next message begins at a message boundary."""

    ticket: Ticket


class CompilingGrammar(Struct, frozen=True, kw_only=True, tag=True):
    """A grammar is compiled next."""

    ticket: Ticket
    field: BoundedText
    """The request's field that it comes from."""


class Rendered(Struct, frozen=True, kw_only=True, tag=True):
    """The rendered job."""

    ticket: Ticket
    rendered: RenderedJob
    compiled_grammars: tuple[Digest, ...] = ()
    """Grammars that are known to compile by now."""


class RenderRefused(Struct, frozen=True, kw_only=True, tag=True):
    """A job cannot be served as it stands."""

    ticket: Ticket
    reason: BoundedText


class RenderFailed(Struct, frozen=True, kw_only=True, tag=True):
    """Rendering a job has revealed a bug."""

    ticket: Ticket
    reason: BoundedText


class ForkExited(Struct, frozen=True, kw_only=True, tag=True):
    """The fork that rendered a job has exited; another one is ready."""

    code: int
    """Its exit status, or the negative number of the signal that killed it."""


FromPreparer = (
    Ready
    | JobReceived
    | CompilingGrammar
    | Rendered
    | RenderRefused
    | RenderFailed
    | ForkExited
)
