from inferd.worker.whisper.model.weights import WhisperModel
from inferd.worker.whisper.transcribe.audio import SAMPLE_RATE
from inferd.worker.whisper.transcribe.inference import InferenceOptions
from inferd.worker.whisper.transcribe.scheduler import JobThread
from inferd.worker.whisper.transcribe.session import (
    PreparedSpeech,
    TranscriptionSession,
)


class NotedSession(TranscriptionSession):
    """A session that records its calls; subclasses provide the transcribed pieces."""

    def __init__(
        self, model: WhisperModel, speech: PreparedSpeech, turn: JobThread
    ) -> None:
        super().__init__(model, speech, turn, lambda: 1)
        self.done: list[str] = []
        self.asked: list[tuple[float, InferenceOptions]] = []

    def detect_language(self, samples) -> None:
        self.done.append("detect")

    def fix_language(self) -> None:
        self.done.append("fix")

    def send(self, partial=None) -> None:
        self.done.append("send")

    def run(self, samples, options, on_segment) -> None:
        self.done.append("run")
        self.asked.append((len(samples) / SAMPLE_RATE, options))
