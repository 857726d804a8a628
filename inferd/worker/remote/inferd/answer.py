"""The frames of a streamed answer as pieces and an end."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from inferd.backend.job import GenerateJob
from inferd.config.kinds.inferd import InferdSettings
from inferd.ipc.worker import Ended
from inferd.wire.responses import StopReason
from inferd.worker.remote.api import Piece, TokenPiece
from inferd.worker.remote.conversation.reader import AnswerBase, Counts
from inferd.worker.remote.failure import RemoteError, quote
from inferd.worker.remote.inferd.frames import (
    Block,
    Frame,
    count_of,
    read_frame,
    read_last,
)

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": "end",
    "tool_use": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
}


class FrameReader(AnswerBase):
    """Reads the frames of one answer.

    Args:
        settings: of the backend.
        ticket: of the job.
        job: that is answered.
        prompt_tokens: estimated.
    """

    def __init__(
        self,
        settings: InferdSettings,
        ticket: int,
        job: GenerateJob,
        prompt_tokens: int,
    ) -> None:
        super().__init__(settings, ticket, job, prompt_tokens)
        self._done: Frame | None = None

    def read(self, data: bytes) -> Sequence[Piece]:
        """Read a frame; return the pieces of the answer in it.

        Raises:
            RemoteError: it is no frame of the answer, or reports an error.
        """
        frame = read_frame(data)
        if frame.type == "done":
            self._end(frame)
            return []
        if frame.block is None:  # of progress
            return []
        return self._pieces(frame.block, frame)

    def finish(self) -> tuple[Sequence[Piece], Ended]:
        """Return the last pieces and the end; raises ``RemoteError`` without ``done``."""
        pieces, ended = super().finish()
        done = self._done
        assert done is not None  # noqa: S101  # the reason came with it
        told = done.structure_complete
        return [*pieces, *self._writer.with_ids([], done.token_ids)], replace(
            ended,
            end_token_id=done.end_token_id,
            stop_token_id=done.stop_token_id,
            structure_complete=ended.structure_complete if told is None else told,
        )

    def _pieces(self, block: Block, frame: Frame) -> Sequence[Piece]:
        ids = frame.token_ids
        match block.type:
            case "text":
                tokens = [TokenPiece(bytes(x.bytes), x) for x in frame.logprobs]
                joined = b"".join(each.piece for each in tokens)
                if tokens and joined == block.delta.encode("utf-8", "replace"):
                    return self._writer.with_ids(self._writer.write_tokens(tokens), ids)
                return self._writer.with_ids(self._write(text=block.delta), ids)
            case "thinking":
                return self._writer.with_ids(self._write(thought=block.delta), ids)
            case "tool_use":
                self._write_call(block.name, block.input, ids)
                return []
            case _:  # of a later version
                return []

    def _end(self, frame: Frame) -> None:
        reason = _STOP_REASONS.get(frame.stop_reason)
        if reason is None:
            raise RemoteError(
                f"the remote ended with the reason {quote(frame.stop_reason)!r}"
            )
        self._stop_reason = reason
        self.is_over = True
        self._done = frame
        if (usage := frame.usage) is not None and not usage.is_estimate:
            self._counts = Counts(
                usage.input_tokens, usage.output_tokens, usage.cached_tokens
            )


def read_prompt_tokens(body: bytes) -> int:
    """Read the tokens of a prompt that was only counted.

    Raises:
        RemoteError: there is no count.
    """
    usage = read_last(body, "done").usage
    if usage is None or usage.input_tokens is None:
        raise RemoteError("the remote's answer has no count of tokens")
    return count_of(usage.input_tokens)
