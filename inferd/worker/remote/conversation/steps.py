"""The messages to the daemon that pieces of an answer become; pure."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from inferd.config.kinds.remote_limits import STEP_PIECES
from inferd.ipc.worker import Step
from inferd.worker.remote.api import Piece, TokenPiece


def steps_of(ticket: int, pieces: Sequence[Piece]) -> Iterator[Step]:
    """Make the messages of pieces; in each all have a log probability and an id or none has.

    Bounds: ``STEP_PIECES`` in each.
    """
    for start in range(0, len(pieces), STEP_PIECES):
        batch = map(_token_of, pieces[start : start + STEP_PIECES])
        for _, run in groupby(
            batch, key=lambda each: (each.logprob is None, each.token_id is None)
        ):
            yield _step(ticket, list(run))


def _token_of(piece: Piece) -> TokenPiece:
    return piece if isinstance(piece, TokenPiece) else TokenPiece(piece)


def _step(ticket: int, pieces: Sequence[TokenPiece]) -> Step:
    return Step(
        pieces=[(ticket, each.piece) for each in pieces],
        logprobs=[
            (ticket, each.logprob) for each in pieces if each.logprob is not None
        ],
        token_ids=[
            (ticket, each.token_id) for each in pieces if each.token_id is not None
        ],
    )
