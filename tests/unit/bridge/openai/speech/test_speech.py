"""Transcriptions in OpenAI's form: the daemon's request, and the bodies and events."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st
from openai.types.audio import (
    Transcription,
    TranscriptionStreamEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
    TranslationVerbose,
)
from openai.types.audio.transcription import UsageDuration
from pydantic import TypeAdapter

from inferd.bridge.openai.speech.answer import SENTENCE_MS, sentences_of
from inferd.bridge.openai.speech.request import ask_transcription, ask_translation
from inferd.bridge.recordings.form import Form
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import Question
from inferd.client.transcripts import TranscriptSegment
from inferd.wire.blocks import AudioBlock, BlocksRequest, Message, TextBlock
from tests.cases import each_case
from tests.fakes.heard import ASKED, body_of, ended, segment

HEARD = (
    segment(0, 1200, " Guten Tag.", 0.25),
    segment(1200, 1300, " "),
    segment(1300, 4000, " <i> & -->\nso"),
)
EVENT: TypeAdapter[Any] = TypeAdapter(TranscriptionStreamEvent)
WORD = "timestamp_granularities[]"


def transcription(*fields: tuple[str, str]) -> Question:
    return ask_transcription(Form(fields, b"sound"), ASKED)


def translation(*fields: tuple[str, str]) -> Question:
    return ask_translation(Form(fields, b"sound"), ASKED)


def test_a_form_becomes_a_request_with_a_recording():
    question = transcription(
        ("model", "whisper-1"),
        ("language", "German"),
        ("prompt", "Tag"),
        ("temperature", "0.5"),
    )
    assert question.request == BlocksRequest(
        id="req_1",
        model="whisper-1",
        messages=[Message("user", [TextBlock("Tag"), AudioBlock("sound")])],
        language="de",
        timestamps="segment",
        temperature=0.5,
        stream=False,
    )
    [medium] = question.media
    assert (medium.kind, medium.data, medium.place, medium.attachment_id) == (
        "sound",
        b"sound",
        "file",
        "sound",
    )


def test_a_translation_is_one_to_english():
    request = translation().request
    assert isinstance(request, BlocksRequest)
    assert (request.translate, request.timestamps) == (True, "segment")


def test_the_short_form_has_the_text_and_its_seconds():
    found = Transcription.model_validate_json(
        body_of(transcription(), *HEARD, ended()), strict=True
    )
    assert found.text == "Guten Tag.  <i> & -->\nso"
    assert isinstance(found.usage, UsageDuration)
    assert found.usage.seconds == 4


def test_the_long_form_has_all_that_clients_with_strict_types_need():
    heard = [
        segment(0, 1200, " Guten Tag.", 0.25, [-0.5, -1.0]),
        segment(1200, 4000, " <i> & -->\nso", 0.5, [-2.0]),
    ]
    asked = transcription(("response_format", "verbose_json"))
    assert isinstance(asked.request, BlocksRequest)
    assert asked.request.speech_logprobs
    body = body_of(asked, *heard, ended())
    found = TranscriptionVerbose.model_validate_json(body, strict=True)
    assert (found.language, found.duration, found.words) == ("german", 4.0, None)
    assert found.segments is not None
    first, last = found.segments
    assert (first.tokens, first.avg_logprob, last.avg_logprob) == ([7, 8], -0.75, -2.0)
    assert (first.id, first.start, first.end, first.no_speech_prob) == (0, 0, 1.2, 0.25)
    assert (last.id, last.text, last.temperature) == (1, " <i> & -->\nso", 0)
    body = body_of(translation(("response_format", "verbose_json")), *heard, ended())
    assert TranslationVerbose.model_validate_json(body, strict=True).language == (
        "english"
    )
    assert json.loads(body)["task"] == "translate"


def test_nothing_is_made_up_of_tokens_that_the_daemon_does_not_tell():
    asked = transcription(("response_format", "verbose_json"))
    [found] = json.loads(body_of(asked, segment(0, 9, " so"), ended()))["segments"]
    assert not {"tokens", "avg_logprob", "no_speech_prob"} & found.keys()


def test_log_probabilities_are_told_to_who_includes_them():
    heard = [segment(0, 9, " a", None, [-0.5]), segment(9, 20, " b", None, [-1.0])]
    told = [{"token": "x", "logprob": each, "bytes": [120]} for each in (-0.5, -1.0)]
    asked = transcription(("include[]", "logprobs"))
    assert isinstance(asked.request, BlocksRequest)
    assert asked.request.speech_logprobs
    assert json.loads(body_of(asked, *heard, ended()))["logprobs"] == told
    assert "logprobs" not in json.loads(body_of(transcription(), *heard, ended()))
    streamed = transcription(("include[]", "logprobs"), ("stream", "true")).answer
    events = b"".join(data for each in heard for data in streamed.add(each))
    assert b'"delta":"a","logprobs":[{"token":"x","logprob":-0.5' in events
    list(streamed.add(ended()))
    assert b'"logprob":-1.0' in b"".join(streamed.end())


def test_words_are_told_alone_or_with_sentences():
    words = [segment(0, 500, " Ja."), segment(500, 900, " So"), segment(900, 990, "?")]
    form = [("response_format", "verbose_json"), (WORD, "word")]
    alone = transcription(*form)
    assert isinstance(alone.request, BlocksRequest)
    assert alone.request.timestamps == "word"
    found = json.loads(body_of(alone, *words, ended()))
    assert "segments" not in found
    assert found["words"] == [
        {"word": "Ja.", "start": 0.0, "end": 0.5},
        {"word": "So", "start": 0.5, "end": 0.9},
        {"word": "?", "start": 0.9, "end": 0.99},
    ]
    both = json.loads(body_of(transcription(*form, (WORD, "segment")), *words, ended()))
    assert [(it["text"], it["start"], it["end"]) for it in both["segments"]] == [
        (" Ja.", 0.0, 0.5),
        (" So?", 0.5, 0.99),
    ]


@given(st.lists(st.sampled_from([" a", "b.", "c? ", "…", " "])))
def test_sentences_leave_no_word_out(texts):
    words = [
        TranscriptSegment(start_ms=10_000 * at, end_ms=10_000 * (at + 1), text=text)
        for at, text in enumerate(texts)
    ]
    found = sentences_of(words)
    assert all(each.end_ms - each.start_ms <= SENTENCE_MS for each in found)
    assert "".join(each.text for each in found) == "".join(texts)
    assert all(a.end_ms == b.start_ms for a, b in pairwise(found))


def test_files_for_players():
    assert body_of(transcription(("response_format", "srt")), *HEARD, ended()) == (
        b"1\n00:00:00,000 --> 00:00:01,200\nGuten Tag.\n\n"
        b"2\n00:00:01,300 --> 00:00:04,000\n<i> & --> so\n\n"
    )
    question = transcription(("response_format", "vtt"))
    assert question.content_type == "text/vtt; charset=utf-8"
    assert body_of(question, *HEARD, ended()) == (
        b"WEBVTT\n\n00:00:00.000 --> 00:00:01.200\nGuten Tag.\n\n"
        b"00:00:01.300 --> 00:00:04.000\n&lt;i&gt; &amp; --&gt; so\n\n"
    )
    question = transcription(("response_format", "text"))
    assert question.content_type == "text/plain; charset=utf-8"
    assert body_of(question, *HEARD, ended()) == b"Guten Tag.  <i> & -->\nso\n"


def test_the_events_of_a_stream_add_up_to_its_text():
    question = transcription(("stream", "true"))
    assert question.is_streamed
    assert isinstance(question.request, BlocksRequest)
    assert question.request.stream
    answer = question.answer
    data = [
        part
        for frame in (segment(0, 1, " "), *HEARD, ended())
        for part in answer.add(frame)
    ]
    data += answer.end()
    events = [
        EVENT.validate_json(each.removeprefix(b"data: ").strip(), strict=True)
        for each in data
    ]
    *deltas, last = events
    assert isinstance(last, TranscriptionTextDoneEvent)
    assert "".join(each.delta for each in deltas) == last.text
    assert last.usage is not None
    assert (last.usage.input_tokens, last.usage.output_tokens) == (205, 9)


def test_silence_is_an_empty_text():
    assert json.loads(body_of(transcription(), ended()))["text"] == ""
    form = transcription(("response_format", "verbose_json"))
    assert json.loads(body_of(form, ended(has_facts=False)))["segments"] == []


def test_tokens_of_a_transcription_that_is_cut_are_those_of_the_sound_so_far():
    answer = transcription().answer
    for frame in HEARD[:2]:
        list(answer.add(frame))
    assert answer.n_tokens == 2 + 65  # of two segments, and 1.3 s
    with pytest.raises(BridgeError) as caught:
        list(answer.add(ended("cancelled")))
    assert caught.value.reason is Reason.CANCELLED
    whole = transcription().answer
    list(whole.add(ended()))
    assert whole.n_tokens == 214


@each_case(
    ("fields", "param"),
    [
        ([("response_format", "diarized_json")], "response_format"),
        ([("response_format", "srt"), ("stream", "true")], "stream"),
        ([(WORD, "word")], WORD),
        ([("include[]", "logprobs"), ("response_format", "srt")], "include[]"),
        ([("chunking_strategy", '{"type":"server_vad"}')], "chunking_strategy"),
        ([("known_speaker_names[]", "ada")], "known_speaker_names[]"),
    ],
)
def test_what_is_not_served_is_refused(fields, param):
    with pytest.raises(BridgeError) as caught:
        transcription(*fields)
    assert caught.value.param == param
    transcription(("chunking_strategy", "auto"))
