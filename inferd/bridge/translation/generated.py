"""What generated answers have in common, whatever their form: calls, ends and costs."""

from collections.abc import Iterator

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import DaemonFrame
from inferd.client.frames import ClientBlocksDone
from inferd.wire.responses import BlockFrame, ProgressFrame, ToolCall

_COMPLETE = ("end_turn", "stop_sequence", "max_tokens", "tool_use")


def stop_reason(done: ClientBlocksDone, *, was_enough: bool = False) -> str:
    """Return why an answer ended: one of the daemon's reasons but ``cancelled``.

    Args:
        done: the end of the daemon's answer.
        was_enough: whether the bridge itself ended it, after a call; the daemon may have
            come to another end before it knew.

    Raises:
        BridgeError: it was cut by others than its own request.
    """
    if was_enough:
        return "tool_use"
    if done.stop_reason in _COMPLETE:
        return done.stop_reason
    if done.detail == "deadline":
        raise BridgeError(Reason.DEADLINE, "the deadline of the request has passed")
    raise BridgeError(Reason.CANCELLED, "the request was cancelled before its end")


class GeneratedAnswer:
    """The base of generated answers: a form adds ``_take``, ``_close``, ``end``, ``whole``.

    Args:
        allows_one_call: whether the answer is over with its first call.
    """

    def __init__(self, *, allows_one_call: bool = False) -> None:
        self._allows_one_call = allows_one_call
        self._has_call = False
        self._n_prompt = 0
        """Tokens of the prompt, as far as they are known before the end."""
        self._n_processed = 0
        """Those of them that were processed, as the daemon tells while it does."""
        self._n_output = 0
        self._done: ClientBlocksDone | None = None
        self._reason = ""
        """Why the answer has ended, as the daemon names it."""

    @property
    def n_tokens(self) -> int:
        """Tokens of the prompt and the answer, so far."""
        return self._n_processed + self._n_output

    @property
    def has_enough(self) -> bool:
        """Whether the one call that is wanted has come."""
        return self._allows_one_call and self._has_call

    def add(self, frame: DaemonFrame) -> Iterator[bytes]:
        """Take a frame; yield the events that follow from it.

        Raises:
            BridgeError: the answer ends without being complete.
        """
        match frame:
            case BlockFrame():
                self._n_processed = self._n_prompt
                self._n_output += 1
                if not self.has_enough:
                    yield from self._take(frame)
                    self._has_call |= isinstance(frame.block, ToolCall)
            case ProgressFrame(processed=int(processed), total=int(total)):
                self._n_prompt, self._n_processed = total, processed
            case ClientBlocksDone(usage=usage):
                self._n_processed = usage.input_tokens
                self._n_output = usage.output_tokens
                reason = stop_reason(frame, was_enough=self.has_enough)
                yield from self._close(reason)
                self._done, self._reason = frame, reason
            case _:
                pass

    def _take(self, frame: BlockFrame) -> Iterator[bytes]:
        """Keep a part of the answer; yield its events."""
        raise NotImplementedError

    def _close(self, reason: str) -> Iterator[bytes]:
        """Yield what follows from the end of the answer, before ``end`` is asked.

        Args:
            reason: why it ends, as the daemon names it.
        """
        del reason
        yield from ()
