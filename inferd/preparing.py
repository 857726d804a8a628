"""What the daemon and a preparer say to each other; ``pipe`` makes bytes of it.

A preparer is the process that does for one model's requests whatever is not plainly linear
in what a client sent: it renders chat templates, and translates and tries grammars. It has
met clients' texts with native code, so the daemon believes it no more than a worker.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from inferd.ipc import Ticket, Words
from inferd.job import GenerateJob, Written

Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
"""The SHA-256 of a grammar."""

A_FORK_ENDED: Final = b"."
"""Written to a preparer's stdout, which its forks have not, at the end of each."""


# --- daemon to preparer -------------------------------------------------------


class Learn(Struct, frozen=True, kw_only=True, tag=True):
    """Learn what the model wants; the first message, answered by ``Ready``."""

    facts: bytes
    """As its worker told them in ``Loaded``."""
    words: bytes = b""
    """Its vocabulary, as in ``Spelt``; without it no grammar is tried."""


class Write(Struct, frozen=True, kw_only=True, tag=True):
    """Write a job's prompt and grammar, and try the grammar.

    Answered by ``Took``, by ``Trying`` for each grammar that is tried, and then by one of
    ``Wrote``, ``Unwritable``, ``Broken`` and ``Ended``.
    """

    ticket: int
    job: GenerateJob
    known: tuple[Digest, ...] = ()
    """Grammars that need not be tried again."""
    content: Raw | UnsetType = UNSET
    """What the job lacks, as in ``Prepare``."""


ToPreparer = Learn | Write


# --- preparer to daemon -------------------------------------------------------


class Ready(Struct, frozen=True, kw_only=True, tag=True):
    """It takes jobs."""


class Took(Struct, frozen=True, kw_only=True, tag=True):
    """A job was read to its end, so that the next message begins where one does."""

    ticket: Ticket


class Trying(Struct, frozen=True, kw_only=True, tag=True):
    """A grammar is compiled next."""

    ticket: Ticket
    where: Words
    """The field that it comes from."""


class Wrote(Struct, frozen=True, kw_only=True, tag=True):
    """What was written."""

    ticket: Ticket
    written: Written
    tried: tuple[Digest, ...] = ()
    """Grammars that have been tried by now, or were known."""


class Unwritable(Struct, frozen=True, kw_only=True, tag=True):
    """A job cannot be served as it stands."""

    ticket: Ticket
    reason: Words


class Broken(Struct, frozen=True, kw_only=True, tag=True):
    """Writing a job has shown a fault of ours."""

    ticket: Ticket
    reason: Words


class Ended(Struct, frozen=True, kw_only=True, tag=True):
    """The process that was at a job is gone; there is another already."""

    code: int
    """Its exit status, or a signal's number, negative."""


FromPreparer = Ready | Took | Trying | Wrote | Unwritable | Broken | Ended
