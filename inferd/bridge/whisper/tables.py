"""The fields of the requests of whisper.cpp's server, and what becomes of each."""

from typing import Final

from inferd.bridge.translation.fields import FieldTable, honoured, ignored, refused

TRUE: Final = ("true", "1", "yes", "y")
FALSE: Final = ("false", "0", "no", "n")

INFERENCE: Final = FieldTable(
    "POST /inference",
    (
        *honoured(
            "file",
            note="A recording as wav, mp3, flac, ogg, m4a or webm, or what else FFmpeg reads; "
            "`bridge.max_audio_bytes` and `bridge.max_sound_s` bound it.",
        ),
        *honoured(
            "model",
            note="An addition: a name or an alias of a model; without it, the first that can "
            "transcribe.",
        ),
        *honoured(
            "language",
            note="Code or English name of the language, or `auto`; without it, detected.",
        ),
        *honoured("translate", note="To English."),
        *honoured("prompt", note="223 tokens at most."),
        *honoured("temperature", note="0 to 2."),
        *honoured(
            "response_format",
            note="`json`, `text`, `srt`, `vtt` or `verbose_json`, whose segments have no "
            "`words`. `text` is `text/plain`.",
        ),
        *honoured(
            "max_len",
            "split_on_word",
            note="Together `1` and `true`: a segment for each word. Other lengths are refused.",
        ),
        *honoured("offset_n", note="Added to the numbers of `srt`."),
        *honoured(
            "no_language_probabilities",
            note="Leaves the detected language out of `verbose_json`.",
        ),
        *ignored(
            "vad_threshold",
            "vad_min_speech_duration_ms",
            "vad_min_silence_duration_ms",
            "vad_max_speech_duration_s",
            "vad_speech_pad_ms",
            "vad_samples_overlap",
            note="Has no effect without `vad`.",
        ),
        *refused("vad", note="there is no detection of voices", neutral=FALSE),
        *refused(
            "temperature_inc",
            note="the model raises its temperature in steps of 0.2",
            neutral=(0.2,),
        ),
        *refused("best_of", note="the model compares 5 samples", neutral=(2.0, 5.0)),
        *refused("beam_size", note="there is no beam search", neutral=(-1.0, 0.0, 1.0)),
        *refused("entropy_thold", note="the threshold is 2.4", neutral=(2.4,)),
        *refused("logprob_thold", note="the threshold is -1", neutral=(-1.0,)),
        *refused("no_speech_thold", note="the threshold is 0.6", neutral=(0.6,)),
        *refused("word_thold", note="the threshold is 0.01", neutral=(0.01,)),
        *refused(
            "offset_t",
            "duration",
            note="all of the file is transcribed",
            neutral=(0.0,),
        ),
        *refused("max_context", note="the context is the model's", neutral=(-1.0,)),
        *refused("audio_ctx", note="the context is the model's", neutral=(0.0,)),
        *refused(
            "no_timestamps",
            note="text is found with its times, and json and text show none",
            neutral=FALSE,
        ),
        *refused(
            "token_timestamps",
            note="times of words are those of max_len 1 with split_on_word",
            neutral=FALSE,
        ),
        *refused(
            "detect_language",
            note="verbose_json tells the language that was detected",
            neutral=FALSE,
        ),
        *refused(
            "diarize", "tinydiarize", note="speakers are not told apart", neutral=FALSE
        ),
        *refused(
            "suppress_non_speech",
            "suppress_nst",
            note="no tokens are suppressed",
            neutral=FALSE,
        ),
        *refused(
            "carry_initial_prompt",
            note="the prompt precedes the first 30 s",
            neutral=FALSE,
        ),
        *refused("debug_mode", note="nothing is written to files", neutral=FALSE),
    ),
)

LOAD: Final = FieldTable(
    "POST /load",
    (*refused("model", note="models are those of the daemon's configuration"),),
)
