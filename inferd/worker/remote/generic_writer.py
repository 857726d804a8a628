"""The answer of a remote as the pieces that a model of the ``generic`` dialect generates."""

from collections.abc import Sequence
from typing import Final

import msgspec

from inferd.backend.job import GenerateJob
from inferd.config.kinds.remote_limits import MAX_CALLS, MAX_CALLS_CHARS, TOKEN_SLACK
from inferd.worker.remote.api import Piece, TokenPiece
from inferd.worker.remote.failure import RemoteError

OPEN_THOUGHT: Final = b"<think>\n"
CLOSE_THOUGHT: Final = b"\n</think>\n\n"
_OPEN_CALL: Final = b"<tool_call>\n"
_CLOSE_CALL: Final = b"\n</tool_call>"
MARKERS: Final = frozenset({OPEN_THOUGHT, CLOSE_THOUGHT, _OPEN_CALL, _CLOSE_CALL})
"""Pieces that answers of v1, which are text alone, leave out."""


class _Call(msgspec.Struct):
    name: str = ""
    arguments: str = ""
    token_ids: Sequence[int] = ()


class GenericWriter:
    """Writes the pieces of one answer; bounds how many there are.

    Args:
        job: what is answered.
    """

    def __init__(self, job: GenerateJob) -> None:
        self._job = job
        self._calls: dict[int, _Call] = {}
        self._n_call_chars = 0
        self._is_in_thought = False
        self._n_left = 2 * job.max_tokens + TOKEN_SLACK
        self._text: list[str] = []
        self.n_pieces = 0
        """Pieces of reasoning, text and calls so far."""

    def reason(self, text: str) -> list[bytes]:
        """Write a part of the reasoning, which is a part of an answer's beginning alone.

        Nothing of it is written if it was not asked for: v1 would show it as text.
        """
        self._count()
        if not self._job.thinks or self._has_begun:
            return []
        opening = [] if self._is_in_thought else [OPEN_THOUGHT]
        self._is_in_thought = True
        return [*opening, text.encode("utf-8", "replace")]

    def write(self, text: str) -> list[bytes]:
        """Write a part of the text."""
        self._count()
        closing = self._close_thought()
        self._text.append(text if self._job.has_structured_text else text[:1])
        return [*closing, text.encode("utf-8", "replace")]

    def write_tokens(self, tokens: Sequence[TokenPiece]) -> list[Piece]:
        """Write a part of the text, of which the tokens are known."""
        text = b"".join(each.piece for each in tokens).decode("utf-8", "replace")
        self._count(len(tokens) - 1)
        *closing, _ = self.write(text)
        return [*closing, *tokens]

    def with_ids(self, pieces: Sequence[Piece], ids: Sequence[int]) -> Sequence[Piece]:
        """Give pieces the ids of the tokens that they come from, as far as they are asked for.

        The pieces of tokens have one each where they are as many. Else the last piece has the
        last id, and those before it have none: they are markers, written here.
        """
        if not (ids and self._job.wants_token_ids):
            return pieces
        texts = [each for each in pieces if isinstance(each, TokenPiece)]
        markers = [each for each in pieces if not isinstance(each, TokenPiece)]
        if len(texts) == len(ids):
            given = zip(texts, ids, strict=True)
            return [*markers, *(each._replace(token_id=id_) for each, id_ in given)]
        self._count(len(ids) - 1)
        if texts or not markers:
            alone = [TokenPiece(b"", token_id=each) for each in ids]
            return [*markers, *alone, *texts]
        alone = [TokenPiece(b"", token_id=each) for each in ids[:-1]]
        return [*markers[:-1], *alone, TokenPiece(markers[-1], token_id=ids[-1])]

    def call(
        self, index: int, name: str, arguments: str, token_ids: Sequence[int] = ()
    ) -> None:
        """Note a part of a call, or all of it with the ids of its tokens.

        Raises:
            RemoteError: no call was allowed, or there are too many, or too long ones.
        """
        self._count()
        if not self._job.tools or self._job.tool_choice.kind == "none":
            raise RemoteError("the remote calls a tool, and was given none")
        if index not in self._calls and len(self._calls) >= MAX_CALLS:
            raise RemoteError(f"the remote calls more than {MAX_CALLS} tools at once")
        self._n_call_chars += len(name) + len(arguments)
        if self._n_call_chars > MAX_CALLS_CHARS:
            raise RemoteError(
                f"the remote's calls have over {MAX_CALLS_CHARS} characters"
            )
        call = self._calls.setdefault(index, _Call())
        call.name += name
        call.arguments += arguments
        call.token_ids = token_ids

    def finish(self) -> list[Piece]:
        """Write what is left, which is the calls."""
        pieces: list[Piece] = [*self._close_thought()]
        for _, call in sorted(self._calls.items()):
            opening = self.with_ids([_OPEN_CALL], call.token_ids)
            pieces += (*opening, _write_call(call), _CLOSE_CALL)
        return pieces

    @property
    def _has_begun(self) -> bool:
        return bool(self._text)

    def is_structure_complete(self, *, was_cut: bool) -> bool | None:
        """Tell whether the structure that was asked for is complete; ``None`` without one."""
        if not self._job.tells_structure:
            return None
        if was_cut:
            return False
        if self._job.tool_choice.is_forced:
            return bool(self._calls)
        try:
            msgspec.json.decode("".join(self._text))
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    def _close_thought(self) -> list[bytes]:
        if not self._is_in_thought:
            return []
        self._is_in_thought = False
        return [CLOSE_THOUGHT]

    def _count(self, n_pieces: int = 1) -> None:
        self.n_pieces += n_pieces
        self._n_left -= n_pieces
        if self._n_left < 0:
            raise RemoteError(
                f"the remote goes on after max_tokens, which is {self._job.max_tokens}"
            )


def _write_call(call: _Call) -> bytes:
    """Write a call as JSON; what could end it is escaped.

    Arguments that are no JSON stay as they are, and the daemon's parser finds that.
    """
    arguments = call.arguments.strip() or "{}"
    text = f'{{"name": {_json(call.name)}, "arguments": {arguments}}}'
    return text.replace("<", "\\u003c").encode("utf-8", "replace")


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()
