"""Have whisper.cpp hear samples, with every parameter set anew."""

import ctypes
import math
from collections.abc import Callable
from contextlib import closing
from typing import Final, NamedTuple

from inferd.worker.whisper.library import GREEDY
from inferd.worker.whisper.model import ENGLISH, Model
from inferd.worker.whisper.sound import Samples
from inferd.worker.whisper.structs import Abort, EncoderBegin, NewSegment

TICK_MS: Final = 10
"""Milliseconds of the library's unit of time."""
LAST_TEMPERATURE: Final = 1.0
"""The library tries no higher one by itself: given a higher one, it would try none."""

_FREED: Final = -7
"""The library's code where there is no memory for a cache: it has freed the state then."""


class ListeningError(Exception):
    """The library failed; its text says at what."""


class Token(NamedTuple):
    """A token of text."""

    number: int
    text: bytes
    """A character may be split over two."""


class Piece(NamedTuple):
    """Words that were heard: a segment, or one word."""

    text: bytes
    start_ms: int
    """From the first of the samples that were handed in."""
    end_ms: int
    no_speech: float | None
    tokens: tuple[Token, ...]
    ends_segment: bool = True


class Options(NamedTuple):
    """What a call is to do."""

    n_threads: int = 1
    language: str = ENGLISH
    translates: bool = False
    by_word: bool = False
    temperature: float | None = None
    prompt: tuple[int, ...] = ()
    """Tokens that came before."""
    goes_on: bool = False
    """Whether what the call before heard came before as well."""
    limit_ms: int = 0
    """No chunk begins from here on; 0 for the samples' end."""
    n_positions: int = 0
    """Places to hear a chunk in, fewer than the model has; 0 for all."""


class Hooks(NamedTuple):
    """What is told while a call lasts, on its own thread."""

    hear: Callable[[list[Piece]], None]
    """Told of each segment: the piece that it is, or those of its words."""
    go_on: Callable[[], bool] = lambda: True
    """Asked before each chunk but the first; may wait."""
    is_over: Callable[[], bool] = lambda: False
    """Asked many times a second, though not while a chunk is encoded; true ends the call."""


class Listener:
    """Room to hear in: a ``whisper_state``, which nothing of another job has been in.

    Args:
        model: that hears.

    Raises:
        ListeningError: there is no memory for it.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._library = model.library
        self._handle: int | None = self._library.whisper_init_state(model.handle)
        if not self._handle:
            raise ListeningError("whisper.cpp has no memory for a state")

    def close(self) -> None:
        """Free it."""
        self._library.whisper_free_state(self._handle)

    def detect(self, samples: Samples, n_threads: int) -> tuple[str, float]:
        """Find the language that is spoken in the first 30 s, and how likely it is.

        Raises:
            ListeningError: the library failed.
        """
        model, n_samples = self._model.handle, len(samples)
        pointer = samples.ctypes.data
        made = self._library.whisper_pcm_to_mel_with_state(
            model, self._handle, pointer, n_samples, n_threads
        )
        if made != 0:
            raise ListeningError(f"whisper.cpp could not read the sound ({made})")
        shares = (ctypes.c_float * (self._library.whisper_lang_max_id() + 1))()
        found = self._library.whisper_lang_auto_detect_with_state(
            model, self._handle, 0, n_threads, shares
        )
        if found < 0:
            raise ListeningError(f"whisper.cpp could not tell the language ({found})")
        known = self._model.languages
        best = max(range(len(known)), key=lambda number: shares[number])
        return known[best], shares[best]

    def listen(self, samples: Samples, options: Options, hooks: Hooks) -> None:
        """Hear samples, until they end or a hook ends it.

        Raises:
            ListeningError: the library failed.
        """
        with closing(_Call(self, options, hooks)) as call:
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
                raise ListeningError(f"whisper.cpp failed ({code})")

    def default_params(self) -> ctypes.Structure:
        """Give the library's parameters, all as they are by default."""
        params: ctypes.Structure = self._library.whisper_full_default_params(GREEDY)
        return params

    def pieces(self, n_new: int) -> list[Piece]:
        """Take the last pieces, which make up one segment."""
        n_pieces = self._library.whisper_full_n_segments_from_state(self._handle)
        # The library tells it of the first word of a segment alone.
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

    def _tokens(self, number: int) -> list[Token]:
        library, state = self._library, self._handle
        n_tokens = library.whisper_full_n_tokens_from_state(state, number)
        ids = [
            library.whisper_full_get_token_id_from_state(state, number, place)
            for place in range(n_tokens)
        ]
        text = library.whisper_full_get_token_text_from_state
        return [
            Token(each, text(self._model.handle, state, number, place))
            for place, each in enumerate(ids)
            if each < self._model.first_special
        ]

    def _no_speech(self, number: int) -> float | None:
        found = self._library.whisper_full_get_segment_no_speech_prob_from_state(
            self._handle, number
        )
        return min(1.0, max(0.0, found)) if math.isfinite(found) else None


class _Call:
    """The parameters of one call, and what they call back."""

    def __init__(self, listener: Listener, options: Options, hooks: Hooks) -> None:
        self._listener = listener
        self._hooks = hooks
        self._n_chunks = 0
        self.is_cut = False
        self.error: Exception | None = None
        self._prompt = (ctypes.c_int32 * len(options.prompt))(*options.prompt)
        self.params = listener.default_params()
        for name, value in _values(options).items():
            setattr(self.params, name, value)
        self.params.prompt_tokens = self._prompt if options.prompt else None
        self.params.prompt_n_tokens = len(options.prompt)
        self.params.new_segment_callback = NewSegment(self._hear)
        self.params.encoder_begin_callback = EncoderBegin(self._begin)
        self.params.abort_callback = Abort(self._is_over)

    def close(self) -> None:
        """Let go of callbacks and error, which refer to this, and by it to the job.

        Samples and file would stay until the collector finds the circle.
        """
        del self.params, self.error

    # An exception cannot pass through the library: it is kept, and ends the call.

    def _hear(self, _model: object, _state: object, n_new: int, _: object) -> None:
        try:
            self._hooks.hear(self._listener.pieces(n_new))
        except Exception as error:  # noqa: BLE001  # raised again by ``listen``
            self.error = error

    def _begin(self, *_: object) -> bool:
        self._n_chunks += 1
        if self._n_chunks == 1:
            return True
        try:
            goes_on = self.error is None and self._hooks.go_on()
        except Exception as error:  # noqa: BLE001  # raised again by ``listen``
            self.error, goes_on = error, False
        self.is_cut = self.is_cut or not goes_on
        return goes_on

    def _is_over(self, _: object) -> bool:
        self.is_cut = self.error is not None or self._hooks.is_over()
        return self.is_cut


def _values(options: Options) -> dict[str, float | bytes]:
    """Give what is not as the library has it by default."""
    values: dict[str, float | bytes] = {
        "n_threads": options.n_threads,
        "duration_ms": options.limit_ms,
        "translate": options.translates,
        "no_context": not options.goes_on,
        "print_progress": False,
        "print_timestamps": False,
        "language": options.language.encode(),
        "audio_ctx": options.n_positions,
    }
    if options.by_word:
        values |= {"token_timestamps": True, "max_len": 1, "split_on_word": True}
    if options.temperature is not None:
        values["temperature"] = options.temperature
        if options.temperature > LAST_TEMPERATURE:
            values["temperature_inc"] = 0.0
    return values
