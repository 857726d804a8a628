from inferd.worker.whisper.listening import Options
from inferd.worker.whisper.model import Model
from inferd.worker.whisper.session import Session, Speech
from inferd.worker.whisper.sound import RATE
from inferd.worker.whisper.turns import Turn


class NotedSession(Session):
    """Notes what is done and what the library is asked, which is said by a subclass."""

    def __init__(self, model: Model, speech: Speech, turn: Turn) -> None:
        super().__init__(model, speech, turn, lambda: 1)
        self.done: list[str] = []
        self.asked: list[tuple[float, Options]] = []

    def find_language(self, samples) -> None:
        self.done.append("find")

    def keep_language(self) -> None:
        self.done.append("keep")

    def tell(self, partial=None) -> None:
        self.done.append("tell")

    def listen(self, samples, options, hear) -> None:
        self.done.append("listen")
        self.asked.append((len(samples) / RATE, options))
