"""Inference with whisper.cpp: one state, and calls whose every parameter is set anew."""

import ctypes
import math
from collections.abc import Callable
from contextlib import closing
from typing import Final, NamedTuple

from inferd.worker.whisper.library import GREEDY
from inferd.worker.whisper.model.weights import ENGLISH, WhisperModel
from inferd.worker.whisper.structs import Abort, EncoderBegin, NewSegment
from inferd.worker.whisper.transcribe.audio import Samples

TICK_MS: Final = 10
"""Milliseconds of the library's unit of time."""
LAST_TEMPERATURE: Final = 1.0
"""Highest temperature of the library's fallback; with a higher start it would try none."""

LEAST_PROBABILITY: Final = 1e-38
"""Of a token: about the least that a 32-bit float holds."""
_FREED: Final = -7
"""Return code of the library if it had no memory for a cache and has freed the state."""


class InferenceError(Exception):
    """The library failed; the text says in which step."""


class TextToken(NamedTuple):
    """A token of text."""

    id: int
    text: bytes
    """UTF-8; a character may be split over two tokens."""
    probability: float = 1.0
    """Above 0."""


class Piece(NamedTuple):
    """Transcribed text: a segment, or one word of it."""

    text: bytes
    start_ms: int
    """Counted from the first sample of the call."""
    end_ms: int
    no_speech: float | None
    tokens: tuple[TextToken, ...]
    ends_segment: bool = True


class InferenceOptions(NamedTuple):
    """Parameters of one call."""

    n_threads: int = 1
    language: str = ENGLISH
    translates: bool = False
    by_word: bool = False
    temperature: float | None = None
    prompt: tuple[int, ...] = ()
    """Tokens of the text before the audio."""
    keeps_context: bool = False
    """Whether the text of the call before counts as context too."""
    limit_ms: int = 0
    """No chunk begins at or after this time; 0 for the end of the samples."""
    audio_ctx: int = 0
    """Encoder positions for a chunk, fewer than the model has; 0 for all."""


class InferenceCallbacks(NamedTuple):
    """Callbacks of a running call, on the thread of the call."""

    on_segment: Callable[[list[Piece]], None]
    """Called with each segment, as one piece or as its words."""
    on_chunk: Callable[[], bool] = lambda: True
    """Called before each chunk but the first; may block. False ends the call."""
    should_abort: Callable[[], bool] = lambda: False
    """Called many times a second, but not while a chunk is encoded; true ends the call."""


class WhisperState:
    """A ``whisper_state`` of one job; never shared with another.

    Args:
        model: the loaded model.

    Raises:
        InferenceError: there is not enough memory for the state.
    """

    def __init__(self, model: WhisperModel) -> None:
        self._model = model
        self._library = model.library
        self._handle: int | None = self._library.whisper_init_state(model.handle)
        if not self._handle:
            raise InferenceError("whisper.cpp has no memory for a state")

    def close(self) -> None:
        """Free the state."""
        self._library.whisper_free_state(self._handle)

    def detect_language(self, samples: Samples, n_threads: int) -> tuple[str, float]:
        """Return the language spoken in the first 30 s, and its probability.

        Raises:
            InferenceError: the library failed.
        """
        model, n_samples = self._model.handle, len(samples)
        pointer = samples.ctypes.data
        made = self._library.whisper_pcm_to_mel_with_state(
            model, self._handle, pointer, n_samples, n_threads
        )
        if made != 0:
            raise InferenceError(
                f"whisper.cpp could not compute the spectrogram (error {made})"
            )
        probabilities = (ctypes.c_float * (self._library.whisper_lang_max_id() + 1))()
        found = self._library.whisper_lang_auto_detect_with_state(
            model, self._handle, 0, n_threads, probabilities
        )
        if found < 0:
            raise InferenceError(
                f"whisper.cpp could not detect the language (error {found})"
            )
        known = self._model.languages
        best = max(range(len(known)), key=lambda index: probabilities[index])
        return known[best], probabilities[best]

    def run(
        self, samples: Samples, options: InferenceOptions, callbacks: InferenceCallbacks
    ) -> None:
        """Transcribe samples until they end or a hook ends the call.

        Raises:
            InferenceError: the library failed.
        """
        with closing(_Call(self, options, callbacks)) as call:
            code = self._library.whisper_full_with_state(
                self._model.handle,
                self._handle,
                call.params,
                samples.ctypes.data,
                len(samples),
            )
            if code == _FREED:
                self._handle = None
            if call.error is not None:
                raise call.error
            if code != 0 and not call.is_cut:
                raise InferenceError(f"whisper.cpp failed (error {code})")

    def default_params(self) -> ctypes.Structure:
        """Return the library's default parameters."""
        params: ctypes.Structure = self._library.whisper_full_default_params(GREEDY)
        return params

    def pieces(self, n_new: int) -> list[Piece]:
        """Read the newest pieces, which make up one segment."""
        n_pieces = self._library.whisper_full_n_segments_from_state(self._handle)
        # The library has it for the first word of a segment only.
        no_speech = self._no_speech(n_pieces - n_new)
        return [
            self._piece(number, no_speech, ends=number == n_pieces - 1)
            for number in range(n_pieces - n_new, n_pieces)
        ]

    def _piece(self, number: int, no_speech: float | None, *, ends: bool) -> Piece:
        library, state = self._library, self._handle
        return Piece(
            library.whisper_full_get_segment_text_from_state(state, number),
            library.whisper_full_get_segment_t0_from_state(state, number) * TICK_MS,
            library.whisper_full_get_segment_t1_from_state(state, number) * TICK_MS,
            no_speech,
            tuple(self._tokens(number)),
            ends,
        )

    def _tokens(self, number: int) -> list[TextToken]:
        library, state = self._library, self._handle
        n_tokens = library.whisper_full_n_tokens_from_state(state, number)
        ids = [
            library.whisper_full_get_token_id_from_state(state, number, index)
            for index in range(n_tokens)
        ]
        text = library.whisper_full_get_token_text_from_state
        probability = library.whisper_full_get_token_p_from_state
        return [
            TextToken(
                token,
                text(self._model.handle, state, number, index),
                _positive(probability(state, number, index)),
            )
            for index, token in enumerate(ids)
            if token < self._model.first_special
        ]

    def _no_speech(self, number: int) -> float | None:
        found = self._library.whisper_full_get_segment_no_speech_prob_from_state(
            self._handle, number
        )
        return min(1.0, max(0.0, found)) if math.isfinite(found) else None


def _positive(probability: float) -> float:
    """Return a probability as one of which there is a logarithm."""
    if not math.isfinite(probability):
        return LEAST_PROBABILITY
    return min(1.0, max(LEAST_PROBABILITY, probability))


class _Call:
    """The parameters of one call, with their C callbacks."""

    def __init__(
        self,
        state: WhisperState,
        options: InferenceOptions,
        callbacks: InferenceCallbacks,
    ) -> None:
        self._state = state
        self._callbacks = callbacks
        self._n_chunks = 0
        self.is_cut = False
        self.error: Exception | None = None
        self._prompt = (ctypes.c_int32 * len(options.prompt))(*options.prompt)
        self.params = state.default_params()
        for name, value in _values(options).items():
            setattr(self.params, name, value)
        self.params.prompt_tokens = self._prompt if options.prompt else None
        self.params.prompt_n_tokens = len(options.prompt)
        self.params.new_segment_callback = NewSegment(self._on_segment)
        self.params.encoder_begin_callback = EncoderBegin(self._on_chunk)
        self.params.abort_callback = Abort(self._should_abort)

    def close(self) -> None:
        """Delete callbacks and error, which refer to this object and thereby to the job.

        Otherwise samples and file would live until the garbage collector finds the cycle.
        """
        del self.params, self.error

    # An exception cannot pass through the library: it is stored, and ends the call.

    def _on_segment(
        self, _model: object, _state: object, n_new: int, _: object
    ) -> None:
        try:
            self._callbacks.on_segment(self._state.pieces(n_new))
        except Exception as error:  # noqa: BLE001  # raised again by ``run``
            self.error = error

    def _on_chunk(self, *_: object) -> bool:
        self._n_chunks += 1
        if self._n_chunks == 1:
            return True
        try:
            goes_on = self.error is None and self._callbacks.on_chunk()
        except Exception as error:  # noqa: BLE001  # raised again by ``run``
            self.error, goes_on = error, False
        self.is_cut = self.is_cut or not goes_on
        return goes_on

    def _should_abort(self, _: object) -> bool:
        self.is_cut = self.error is not None or self._callbacks.should_abort()
        return self.is_cut


def _values(options: InferenceOptions) -> dict[str, float | bytes]:
    """Return the parameters that differ from the library's defaults."""
    values: dict[str, float | bytes] = {
        "n_threads": options.n_threads,
        "duration_ms": options.limit_ms,
        "translate": options.translates,
        "no_context": not options.keeps_context,
        "print_progress": False,
        "print_timestamps": False,
        "language": options.language.encode(),
        "audio_ctx": options.audio_ctx,
    }
    if options.by_word:
        values |= {"token_timestamps": True, "max_len": 1, "split_on_word": True}
    if options.temperature is not None:
        values["temperature"] = options.temperature
        if options.temperature > LAST_TEMPERATURE:
            values["temperature_inc"] = 0.0
    return values
