"""How requests are written and answers are read, by one of two dialects."""

from collections.abc import Sequence
from typing import Protocol

from inferd.client.callback.configuration import Config
from inferd.client.callback.http_client import HttpRequest, HttpResponse
from inferd.client.callback.requests import (
    ChatRequest,
    StructuredRequest,
    TranscriptionRequest,
)


class AnswerReader(Protocol):
    """Reads the pieces of one answer as they come."""

    @property
    def is_whole(self) -> bool:
        """Whether the end of the answer has come."""
        ...

    @property
    def was_cut(self) -> bool:
        """Whether the answer was ended before its own end, as by ``max_tokens``."""
        ...

    @property
    def was_cancelled(self) -> bool:
        """Whether somebody else has cancelled it."""
        ...

    @property
    def n_output(self) -> int | None:
        """Tokens of the answer, as the server counted them."""
        ...

    @property
    def n_total(self) -> int | None:
        """Tokens of the prompt and the answer, as the server counted them."""
        ...

    def feed(self, data: bytes) -> Sequence[str]:
        """Add bytes; return the texts that have come.

        Raises:
            AnswerError: the answer is an error, or cannot be read.
        """
        ...

    def end(self, response: HttpResponse) -> Sequence[str]:
        """End the answer; return the texts of one that was not streamed.

        Raises:
            AnswerError: the answer is an error, or cannot be read.
        """
        ...


class Dialect(Protocol):
    """Writes requests; the same request and configuration are the same bytes."""

    def chat(
        self, request: ChatRequest, config: Config
    ) -> tuple[HttpRequest, AnswerReader]:
        """Write a chat; raises ``AnswerError`` if it cannot be written."""
        ...

    def complete(
        self, request: StructuredRequest, config: Config
    ) -> tuple[HttpRequest, AnswerReader]:
        """Write a structured request; raises ``AnswerError`` if it cannot be written."""
        ...

    def transcribe(
        self, request: TranscriptionRequest, config: Config
    ) -> tuple[HttpRequest, AnswerReader]:
        """Write a transcription; raises ``AnswerError`` if it cannot be written."""
        ...


def number_of(value: float) -> float:
    """Return a number as it is written: a whole one without a point."""
    return int(value) if value == int(value) else value


def temperature_of(request: ChatRequest | StructuredRequest, config: Config) -> float:
    """Return the temperature of a request: the configured one, if there is one."""
    chosen = request.temperature if config.temperature is None else config.temperature
    return number_of(chosen)
