"""What requests that are to be accepted may have where no table of fields says it.

Of most fields a schema allows more than means something: a text that has to be a file, a
number of tokens below zero, a call without its result.
"""

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Final

from proofs.published.documents import Schema
from proofs.published.requests import ASKED, PLACE, Limits

CHAT: Final = "chat"
SPEECH: Final = "speech"
MODEL: Final = "model"
"""In the full form a model, whose answers are structured."""


def one_of(*values: object) -> Schema:
    """Return a schema of some values."""
    return {"enum": [*values]}


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {**properties},
        "required": [*properties],
        "additionalProperties": False,
    }


def _turns(schema: str, called: Sequence[Schema]) -> Schema:
    """Return a schema of conversations: one with a call and its result, or any."""
    items = {"$ref": f"{PLACE}{ASKED}{schema}"}
    return {
        "anyOf": [
            {"type": "array", "items": items, "minItems": 1, "maxItems": 5},
            {"enum": [called]},
        ]
    }


def small_picture() -> str:
    """Return a PNG file of one pixel, in base64."""
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0\xff\0\0")),
        (b"IEND", b""),
    )
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in parts
    )
    return base64.b64encode(data).decode()


def small_recording() -> str:
    """Return a WAV file of ASCII alone, since forms that are drawn have texts."""
    n_samples, rate_hz = 101, 8000
    chunk = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate_hz, rate_hz, 1, 8)
    data = struct.pack("<4sI", b"data", n_samples) + b"@" * n_samples
    body = b"WAVE" + chunk + data
    # One byte more than the length says, which has to be ASCII too.
    head = struct.pack("<4sI", b"RIFF", len(body) & 0x7F)
    return (head + body).decode("ascii")


_PICTURE: Final = f"data:image/png;base64,{small_picture()}"
_SOUND: Final = base64.b64encode(small_recording().encode()).decode()
_FLAG: Final[Schema] = {"type": "boolean"}
_COUNT: Final = one_of(1, 2, 9)
_SAMPLING: Final[dict[str, Schema | None]] = {
    "model": one_of(CHAT, MODEL),
    "seed": _COUNT,
    "stop": one_of("zz", ["zz", "y"]),
    "max_tokens": _COUNT,
    "max_completion_tokens": _COUNT,
    "logit_bias": one_of({}, {"5": 1}),
    "tool_choice": one_of("none", "auto"),
}
_OF_OLLAMA: Final[dict[str, Schema | None]] = {
    "model": one_of(CHAT, MODEL),
    "logprobs": _FLAG,
    "keep_alive": one_of("5m", "1h30m", 60),
    "images": {"type": "array", "items": one_of(small_picture()), "maxItems": 2},
    "format": one_of("json", {"type": "object"}),
    "dimensions": one_of(1, 8),
}
_RECORDING: Final[dict[str, Schema | None]] = {
    "file": {"type": "string", "format": "binary", "enum": [small_recording()]},
    "model": one_of(SPEECH),
    "temperature": one_of(0, 1),
    "language": one_of("en"),
    "prompt": one_of("Names."),
}
_SCHEMA: Final[Schema] = one_of({"type": "object"})
_TEXT: Final[Schema] = {"type": "string", "minLength": 1}

_FUNCTION: Final = {"name": "weather", "arguments": '{"city":"Paris"}'}
_CALLED: Final[list[Schema]] = [
    {"role": "user", "content": "What is the weather in Paris?"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "call_1", "type": "function", "function": _FUNCTION}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."},
]
_CALLED_ITEMS: Final[list[Schema]] = [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"type": "function_call", "call_id": "call_1", **_FUNCTION},
    {"type": "function_call_output", "call_id": "call_1", "output": "Rain."},
]
_CALLED_OLLAMA: Final[list[Schema]] = [
    {"role": "user", "content": "What is the weather in Paris?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"function": {"name": "weather", "arguments": {"city": "Paris"}}}
        ],
    },
    {"role": "tool", "content": "Rain."},
]

FIELDS: Final[dict[str, Limits]] = {
    "/v1/chat/completions": {
        **_SAMPLING,
        "messages": _turns("ChatCompletionRequestMessage", _CALLED),
    },
    "/v1/completions": {**_SAMPLING, "prompt": _TEXT},
    "/v1/embeddings": {
        "model": one_of(CHAT),
        "input": {
            "anyOf": [
                _TEXT,
                {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 9},
            ]
        },
        "dimensions": one_of(1, 8),
    },
    "/v1/responses": {
        **_SAMPLING,
        "max_output_tokens": one_of(16),
        "top_logprobs": one_of(0, 2, 20),
        "input": {"anyOf": [_TEXT, _turns("EasyInputMessage", _CALLED_ITEMS)]},
    },
    "/v1/audio/transcriptions": {
        **_RECORDING,
        "include": None,
        "keywords": None,
        "languages": None,
        "known_speaker_names": None,
        "known_speaker_references": None,
        "response_format": one_of("json", "text", "srt", "vtt", "verbose_json"),
    },
    "/v1/audio/translations": _RECORDING,
    "/api/chat": {**_OF_OLLAMA, "messages": _turns("ChatMessage", _CALLED_OLLAMA)},
    "/api/generate": _OF_OLLAMA,
    "/api/embed": {**_OF_OLLAMA, "model": one_of(CHAT)},
    "/api/show": {"model": one_of(CHAT, SPEECH)},
}
"""By the path of our operation."""

NEEDED: Final = frozenset({"input", "prompt"})
"""Fields without which a request asks for nothing."""
STREAM: Final = "stream"
STREAM_OPTIONS: Final = "stream_options"

SCHEMAS: Final[Limits] = {
    # OpenAI: what is stored elsewhere, or is of another kind than functions and texts.
    "ChatCompletionRequestMessageContentPartFile": None,
    "ChatCompletionRequestFunctionMessage": None,
    "ChatCompletionRequestToolMessage": None,
    "ChatCompletionMessageToolCalls": {"type": "array", "maxItems": 0},
    "CustomToolChatCompletions": None,
    "ChatCompletionAllowedToolsChoice": None,
    "ChatCompletionRequestMessageContentPartImage": _object(
        type=one_of("image_url"), image_url=_object(url=one_of(_PICTURE))
    ),
    "ChatCompletionRequestMessageContentPartAudio": _object(
        type=one_of("input_audio"),
        input_audio=_object(data=one_of(_SOUND), format=one_of("wav")),
    ),
    "FunctionParameters": _SCHEMA,
    "ResponseFormatJsonSchemaSchema": _SCHEMA,
    "InputFileContent": None,
    "InputImageContent": _object(
        type=one_of("input_image"), detail=one_of("auto"), image_url=one_of(_PICTURE)
    ),
    "ChatCompletionRequestAssistantMessage": _object(
        role=one_of("assistant"), content=_TEXT
    ),
    "Reasoning": _object(mode=one_of("standard"), summary=one_of("auto", None)),
    "Verbosity": one_of("medium"),
    "ToolChoiceParam": one_of("none", "auto"),
    # Ollama
    "ChatMessage": _object(role=one_of("system", "user", "assistant"), content=_TEXT),
    "ModelOptions": {
        "type": "object",
        "properties": {
            "seed": _COUNT,
            "temperature": {"type": "number", "minimum": 0, "maximum": 2},
            "top_k": one_of(1, 40),
            "top_p": one_of(0.5, 1),
            "min_p": one_of(0, 0.1),
            "stop": one_of("zz", ["zz", "y"]),
            "num_predict": one_of(1, 9),
        },
        "additionalProperties": False,
    },
}
"""By the name of a published schema."""
