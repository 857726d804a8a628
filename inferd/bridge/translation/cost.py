"""The tokens that an answer counts for, in the quota of its caller."""

from inferd.bridge.translation.question import DaemonFrame
from inferd.client.frames import ClientBlocksDone
from inferd.wire.responses import BlockFrame


class AnswerCost:
    """The tokens of a generated answer."""

    def __init__(self) -> None:
        self.n_tokens = 0
        """Tokens of the prompt and the answer; of one that was cut, the parts that have
        come."""

    def take(self, frame: DaemonFrame) -> None:
        """Count a frame."""
        match frame:
            case BlockFrame():
                self.n_tokens += 1
            case ClientBlocksDone(usage=usage):
                self.n_tokens = usage.input_tokens + usage.output_tokens
            case _:
                pass
