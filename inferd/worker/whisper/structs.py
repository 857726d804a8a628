"""whisper.cpp's structs and callbacks, and the defaults that identify their layout.

Source: ``whisper.h`` of ``library.VERSION``.
"""

import ctypes
from typing import Final

Handle = ctypes.c_void_p
_Bool = ctypes.c_bool
_Int = ctypes.c_int
_Float = ctypes.c_float

NewSegment = ctypes.CFUNCTYPE(None, Handle, Handle, _Int, Handle)
"""``(context, state, number of new segments, user data)``."""
EncoderBegin = ctypes.CFUNCTYPE(_Bool, Handle, Handle, Handle)
"""Called before each chunk; false ends the call."""
Abort = ctypes.CFUNCTYPE(_Bool, Handle)
"""Called after each encoded chunk and each decoded token; true ends the call."""


class Aheads(ctypes.Structure):
    """``whisper_aheads``."""

    _fields_ = [  # type: ignore[mutable-override]  # as ctypes has it
        ("n_heads", ctypes.c_size_t),
        ("heads", Handle),
    ]


class ContextParams(ctypes.Structure):
    """``whisper_context_params``."""

    _fields_ = [  # type: ignore[mutable-override]  # as ctypes has it
        ("use_gpu", _Bool),
        ("flash_attn", _Bool),
        ("gpu_device", _Int),
        ("dtw_token_timestamps", _Bool),
        ("dtw_aheads_preset", _Int),
        ("dtw_n_top", _Int),
        ("dtw_aheads", Aheads),
        ("dtw_mem_size", ctypes.c_size_t),
    ]


class VadParams(ctypes.Structure):
    """``whisper_vad_params``."""

    _fields_ = [  # type: ignore[mutable-override]  # as ctypes has it
        ("threshold", _Float),
        ("min_speech_duration_ms", _Int),
        ("min_silence_duration_ms", _Int),
        ("max_speech_duration_s", _Float),
        ("speech_pad_ms", _Int),
        ("samples_overlap", _Float),
    ]


class FullParams(ctypes.Structure):
    """``whisper_full_params``."""

    _fields_ = [  # type: ignore[mutable-override]  # as ctypes has it
        ("strategy", _Int),
        ("n_threads", _Int),
        ("n_max_text_ctx", _Int),
        ("offset_ms", _Int),
        ("duration_ms", _Int),
        ("translate", _Bool),
        ("no_context", _Bool),
        ("no_timestamps", _Bool),
        ("single_segment", _Bool),
        ("print_special", _Bool),
        ("print_progress", _Bool),
        ("print_realtime", _Bool),
        ("print_timestamps", _Bool),
        ("token_timestamps", _Bool),
        ("thold_pt", _Float),
        ("thold_ptsum", _Float),
        ("max_len", _Int),
        ("split_on_word", _Bool),
        ("max_tokens", _Int),
        ("debug_mode", _Bool),
        ("audio_ctx", _Int),
        ("tdrz_enable", _Bool),
        ("suppress_regex", ctypes.c_char_p),
        ("initial_prompt", ctypes.c_char_p),
        ("carry_initial_prompt", _Bool),
        ("prompt_tokens", ctypes.POINTER(ctypes.c_int32)),
        ("prompt_n_tokens", _Int),
        ("language", ctypes.c_char_p),
        ("detect_language", _Bool),
        ("suppress_blank", _Bool),
        ("suppress_nst", _Bool),
        ("temperature", _Float),
        ("max_initial_ts", _Float),
        ("length_penalty", _Float),
        ("temperature_inc", _Float),
        ("entropy_thold", _Float),
        ("logprob_thold", _Float),
        ("no_speech_thold", _Float),
        ("best_of", _Int),
        ("beam_size", _Int),
        ("patience", _Float),
        ("new_segment_callback", NewSegment),
        ("new_segment_callback_user_data", Handle),
        ("progress_callback", Handle),
        ("progress_callback_user_data", Handle),
        ("encoder_begin_callback", EncoderBegin),
        ("encoder_begin_callback_user_data", Handle),
        ("abort_callback", Abort),
        ("abort_callback_user_data", Handle),
        ("logits_filter_callback", Handle),
        ("logits_filter_callback_user_data", Handle),
        ("grammar_rules", Handle),
        ("n_grammar_rules", ctypes.c_size_t),
        ("i_start_rule", ctypes.c_size_t),
        ("grammar_penalty", _Float),
        ("vad", _Bool),
        ("vad_model_path", ctypes.c_char_p),
        ("vad_params", VadParams),
    ]


FULL_DEFAULTS: Final[dict[str, float | bytes | None]] = {
    "strategy": 0,
    "n_max_text_ctx": 16_384,
    "offset_ms": 0,
    "duration_ms": 0,
    "translate": False,
    "no_context": True,
    "no_timestamps": False,
    "single_segment": False,
    "print_special": False,
    "print_progress": True,
    "print_realtime": False,
    "print_timestamps": True,
    "token_timestamps": False,
    "thold_pt": 0.01,
    "thold_ptsum": 0.01,
    "max_len": 0,
    "split_on_word": False,
    "max_tokens": 0,
    "debug_mode": False,
    "audio_ctx": 0,
    "tdrz_enable": False,
    "suppress_regex": None,
    "initial_prompt": None,
    "carry_initial_prompt": False,
    "prompt_n_tokens": 0,
    "language": b"en",
    "detect_language": False,
    "suppress_blank": True,
    "suppress_nst": False,
    "temperature": 0.0,
    "max_initial_ts": 1.0,
    "length_penalty": -1.0,
    "temperature_inc": 0.2,
    "entropy_thold": 2.4,
    "logprob_thold": -1.0,
    "no_speech_thold": 0.6,
    "best_of": 5,
    "beam_size": -1,
    "patience": -1.0,
    "progress_callback": None,
    "logits_filter_callback": None,
    "grammar_rules": None,
    "n_grammar_rules": 0,
    "i_start_rule": 0,
    "grammar_penalty": 100.0,
    "vad": False,
    "vad_model_path": None,
}
"""The library's defaults by field, without ``n_threads`` and callbacks."""
