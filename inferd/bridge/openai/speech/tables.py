"""The fields of forms with a recording, and what becomes of each."""

from typing import Final

from inferd.bridge.translation.fields import FieldTable, honoured, refused

_RECORDING: Final = (
    *honoured(
        "file",
        note="A recording as wav, mp3, flac, ogg, m4a or webm, or what else FFmpeg reads; "
        "`bridge.max_audio_bytes` and `bridge.max_sound_s` bound it.",
    ),
    *honoured(
        "model",
        note="A name or an alias that `/v1/models` lists with the use `transcribe`; without "
        "it, the first that can.",
    ),
    *honoured("prompt", note="Names and words that may occur, 223 tokens at most."),
    *honoured(
        "temperature",
        note="0 to 2; whatever it is, the model raises it for a part that it cannot make out.",
    ),
)
_FORMATS: Final = (
    "`json`, `text`, `srt`, `vtt` or `verbose_json`, whose segments have the `tokens` of their "
    "text and the mean of these as `avg_logprob`."
)

TRANSCRIPTIONS: Final = FieldTable(
    "POST /v1/audio/transcriptions",
    (
        *_RECORDING,
        *honoured(
            "language",
            note="Code or English name of the language; without it, detected.",
        ),
        *honoured("response_format", note=_FORMATS),
        *honoured(
            "timestamp_granularities[]",
            note="`word`, `segment` or both; needs `verbose_json`. With both, segments are the "
            "sentences that the words make up, of 30 s at most.",
        ),
        *honoured(
            "stream",
            note="Needs the `response_format` `json`. An event for each segment; the usage at "
            "the end is in tokens, 50 for each second of sound.",
        ),
        *honoured(
            "include[]",
            note="`logprobs`; needs the `response_format` `json`. Those of the tokens of the text.",
        ),
        *refused(
            "chunking_strategy",
            note="the model itself decides where a part of 30 s ends",
            neutral=("auto",),
        ),
        *refused("keywords[]", note="use prompt"),
        *refused("languages[]", note="use language, or leave it to be detected"),
        *refused(
            *("known_speaker_names[]", "known_speaker_references[]"),
            note="speakers are not told apart",
        ),
    ),
)

TRANSLATIONS: Final = FieldTable(
    "POST /v1/audio/translations",
    (
        *_RECORDING,
        *honoured(
            "language",
            note="An addition: code or English name of the language that is spoken.",
        ),
        *honoured("response_format", note=_FORMATS),
    ),
)
