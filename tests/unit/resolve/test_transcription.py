from typing import Any

import pytest
from msgspec import Raw

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import Media, TranscribeJob
from inferd.errors import InferdError, InvalidRequestError
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.transcription import LANGUAGES, transcription_field
from inferd.resolve.v2 import resolve_v2
from inferd.routing import route
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    BlocksRequest,
    ImageAttachment,
    ImageBlock,
    Message,
    ResponseFormat,
    TextBlock,
    Tool,
)
from tests.cases import each_case
from tests.fakes.backend import ScriptedBackend

SOUND = AudioAttachment("s", 16000, "")
OPEN = AudioAttachment("s", 16000, open=True)
IMAGE = ImageAttachment("i", 1, 1, "")
SAID = Message("user", [TextBlock("a, "), AudioBlock("s"), TextBlock("b")])
AUDIO = Media(kind="audio", id="s", n_bytes=0, sample_rate=16000)

WRITER = BackendCapabilities(v2=True, audio=True, audio_sample_rate=16000)
SPEECH = BackendCapabilities(generate=False, transcribe=True, audio_sample_rate=16000)
DEAF = BackendCapabilities(v2=True)


def resolve(*messages: Message, **fields: Any) -> ResolvedRequest[Any]:
    given = {"attachments": [SOUND], "messages": [*messages] or [SAID], **fields}
    return resolve_v2(BlocksRequest(**given), seed=7, owner=5, marker="#")


def transcription(**fields: Any) -> TranscribeJob:
    job = resolve(**fields).transcription
    assert job is not None
    return job


def refusal(*messages: Message, **fields: Any) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        resolve(*messages, **fields)
    return str(caught.value)


def routed(plan: ResolvedRequest[Any], *able: BackendCapabilities) -> int:
    backends = [
        ScriptedBackend(name=str(n), capabilities=c) for n, c in enumerate(able)
    ]
    return backends.index(route(backends, plan.needs))  # type: ignore[arg-type]


# --- what a transcription is ------------------------------------------------------------


def test_a_recording_may_be_written_down_with_the_words_beside_it_as_its_prompt():
    plan = resolve()
    assert plan.transcription == TranscribeJob(owner=5, audio=AUDIO, prompt="a, b")
    assert plan.job.media == (AUDIO,)
    assert plan.job.turns[0].text == "a, #b"


def test_its_options_are_passed_on():
    plan = resolve(
        language="de", translate=True, timestamps="word", temperature=0.5, max_tokens=9
    )
    assert plan.transcription == TranscribeJob(
        owner=5,
        audio=AUDIO,
        prompt="a, b",
        language="de",
        translates=True,
        timestamps="word",
        temperature=0.5,
        max_tokens=9,
    )


@pytest.mark.parametrize("language", ["auto", None])
def test_a_language_may_be_found_out(language):
    assert transcription(language=language).language is None


def test_there_are_a_hundred_languages():
    assert len(set(LANGUAGES)) == 100
    assert transcription(language="yue").language == "yue"


@pytest.mark.parametrize("stream", [True, False, None])
def test_partial_text_is_for_those_who_read_open_sound_as_it_comes(stream):
    job = transcription(attachments=[OPEN], stream=stream)
    assert job.audio.is_open
    assert job.wants_partials == (stream is not False)
    assert not transcription(stream=stream).wants_partials


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("language", "xx", "[auto, af, am,"),
        ("language", "", "[auto, af, am,"),
        ("timestamps", "char", "[segment, word]"),
    ],
)
def test_a_value_that_nobody_knows_is_refused_for_any_backend(field, value, allowed):
    words = f"{field} {value} not in {allowed}"
    assert refusal(**{field: value}).startswith(words)
    text = Message("user", [TextBlock("hi")])
    assert refusal(text, **{field: value}).startswith(words)


# --- what cannot be one -----------------------------------------------------------------

NOT_HONOURED: dict[str, Any] = {
    "tools": [Tool("f", "", Raw(b"{}"))],
    "response_format": ResponseFormat(type="regex", pattern="a"),
    "tool_choice": "none",
    "thinking": True,
    "prefill_only": True,
    "seed": 0,
    "top_p": 0.5,
    "top_k": 0,
    "min_p": 0.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": {"1": 1.0},
    "stop": ["x"],
    "stop_token_ids": [1],
    "min_tokens": 1,
    "logprobs": 1,
    "cache": "off",
}

ASKING: list[dict[str, Any]] = [
    *({"language": "auto"}, {"translate": False}, {"timestamps": "segment"}),
    {"attachments": [OPEN]},
]


@each_case("field", NOT_HONOURED)
def test_what_it_cannot_honour_needs_a_model_that_writes(field):
    plan = resolve(**{field: NOT_HONOURED[field]})
    assert plan.transcription is None
    able = BackendCapabilities(
        v2=True, audio=True, tools=True, thinking=True, structure=True
    )
    assert routed(plan, SPEECH, able) == 1


@each_case("field", NOT_HONOURED)
@each_case("asking", ASKING)
def test_who_asks_for_one_is_told_what_it_cannot_honour(field, asking):
    assert refusal(**{field: NOT_HONOURED[field]}, **asking).endswith(
        f"asks for a transcription, which cannot honour {field}"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "stop": [], "stop_token_ids": [], "logit_bias": {}},
        {"thinking": False, "prefill_only": False, "min_tokens": 0, "cache": "auto"},
        {"priority": 3, "deadline_ms": 9, "progress": True, "stream": True},
    ],
)
def test_what_asks_for_nothing_is_honoured(fields):
    assert resolve(language="en", **fields).transcription is not None


OTHERS = [
    [Message("assistant", SAID.content)],
    [SAID, SAID],
    [Message("user", [*SAID.content, AudioBlock("s")])],
    [Message("user", [*SAID.content, ImageBlock("i")])],
    [Message("user", [TextBlock("hi")])],
]


@each_case("messages", OTHERS)
def test_a_conversation_is_for_a_model_that_writes(messages):
    plan = resolve(*messages, attachments=[SOUND, IMAGE])
    assert plan.transcription is None
    assert refusal(*messages, attachments=[SOUND, IMAGE], language="en") == (
        "language asks for a transcription, which takes one message, of the user, "
        "with one audio block and text blocks"
    )


def test_open_sound_that_no_block_refers_to_is_refused():
    other = AudioAttachment("t", 16000, open=True)
    assert refusal(attachments=[SOUND, other]).startswith('open attachment "t" asks')


def test_what_asks_for_one_is_named():
    plain = BlocksRequest(messages=[SAID], attachments=[SOUND])
    assert transcription_field(plain) is None
    live = BlocksRequest(messages=[SAID], attachments=[OPEN], timestamps="word")
    assert transcription_field(live) == "timestamps"


# --- who serves it ----------------------------------------------------------------------


def test_a_recording_goes_to_the_first_that_hears():
    plan = resolve()
    assert routed(plan, DEAF, WRITER, SPEECH) == 1
    assert routed(plan, DEAF, SPEECH, WRITER) == 1


@each_case("asking", ASKING)
def test_a_transcription_goes_to_the_first_that_writes_speech_down(asking):
    assert routed(resolve(**asking), DEAF, WRITER, SPEECH) == 2


@each_case(
    ("fields", "able", "code", "words"),
    [
        ({}, [DEAF], "attachment_unsupported", "no backend takes audio"),
        (ASKING[0], [DEAF], "attachment_unsupported", "no backend takes audio"),
        (
            ASKING[0],
            [WRITER],
            "invalid_request",
            "language: no backend transcribes speech",
        ),
        (ASKING[3], [WRITER], "invalid_request", 'open attachment "s": no backend'),
        (
            {"attachments": [AudioAttachment("s", 44100, "")]},
            [WRITER, SPEECH],
            "invalid_request",
            'attachment "s": sample_rate 44100 is not the 16000 that backend "0" takes',
        ),
    ],
)
def test_where_nobody_can_the_reason_is_told(fields, able, code, words):
    with pytest.raises(InferdError) as caught:
        routed(resolve(**fields), *able)
    assert caught.value.code == code
    assert words in caught.value.message
