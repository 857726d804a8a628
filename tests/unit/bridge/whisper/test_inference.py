"""Transcripts in the forms of whisper.cpp's server."""

import json

import pytest

from inferd.bridge.recordings.form import Form
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import Question
from inferd.bridge.whisper.api import WHISPER, failure_body, refuse_load
from inferd.bridge.whisper.inference import ask_inference
from inferd.wire.blocks import BlocksRequest
from tests.cases import each_case
from tests.fakes.heard import ASKED, body_of, ended, segment

HEARD = (segment(0, 1200, " Guten Tag.", 0.25), segment(1200, 4000, " Auch so."))
MANUAL = (
    *(("temperature", "0.0"), ("temperature_inc", "0.2"), ("no_speech_thold", "0.6")),
    *(("response_format", "json"), ("carry_initial_prompt", "false")),
)


def inference(*fields: tuple[str, str]) -> Question:
    return ask_inference(Form(fields, b"sound"), ASKED)


def request_of(*fields: tuple[str, str]) -> BlocksRequest:
    request = inference(*fields).request
    assert isinstance(request, BlocksRequest)
    return request


def test_the_request_of_its_manual_is_accepted():
    request = request_of(*MANUAL)
    assert (request.temperature, request.timestamps) == (0.0, "segment")
    assert (request.language, request.translate) == (None, None)


def test_flags_and_languages_are_read_as_its_server_does():
    assert request_of(("translate", "y"), ("language", "german")).translate
    assert request_of(("translate", "0")).translate is None
    assert request_of(("language", "auto")).language == "auto"
    assert request_of(("max_len", "1"), ("split_on_word", "1")).timestamps == "word"
    assert request_of(("split_on_word", "1")).timestamps == "segment"


def test_its_forms():
    assert json.loads(body_of(inference(), *HEARD, ended())) == {
        "text": "Guten Tag.\nAuch so.\n"
    }
    text = inference(("response_format", "text"))
    assert text.content_type == "text/plain; charset=utf-8"
    assert body_of(text, *HEARD, ended()) == b"Guten Tag.\nAuch so.\n"
    srt = inference(("response_format", "srt"), ("offset_n", "7"))
    assert body_of(srt, *HEARD, ended()) == (
        b"8\n00:00:00,000 --> 00:00:01,200\nGuten Tag.\n\n"
        b"9\n00:00:01,200 --> 00:00:04,000\nAuch so.\n\n"
    )
    vtt = inference(("response_format", "vtt"))
    assert body_of(vtt, *HEARD, ended()).startswith(b"WEBVTT\n\n00:00:00.000 --> ")


def test_its_long_form():
    form = ("response_format", "verbose_json")
    found = json.loads(body_of(inference(form), *HEARD, ended()))
    assert found["segments"][1] == {
        "id": 1,
        "text": " Auch so.",
        "start": 1.2,
        "end": 4.0,
        "temperature": 0.0,
    }
    del found["segments"]
    told = {"task": "transcribe", "language": "german", "duration": 4.0}
    detected = {
        "detected_language": "german",
        "detected_language_probability": 0.75,
        "language_probabilities": {"de": 0.75},
    }
    text = {"text": "Guten Tag.\nAuch so.\n"}
    assert found == {**told, **text, **detected}
    short = inference(form, ("no_language_probabilities", "true"))
    found = json.loads(body_of(short, *HEARD, ended()))
    del found["segments"]
    assert found == {**told, **text}


@each_case(
    ("name", "text"),
    [
        *(("max_len", "1"), ("max_len", "60"), ("translate", "perhaps")),
        *(("temperature_inc", "0"), ("beam_size", "5"), ("vad", "true")),
        *(("no_timestamps", "true"), ("diarize", "1"), ("offset_t", "1000")),
        *(("response_format", "xml"), ("threads", "4")),
    ],
)
def test_what_is_not_served_is_refused(name, text):
    with pytest.raises(BridgeError) as caught:
        inference((name, text))
    assert caught.value.param == name
    assert json.loads(failure_body(caught.value))["error"].startswith(
        (f"{name}: ", "no such field: ")
    )


def test_no_model_is_loaded_from_a_path():
    with pytest.raises(BridgeError) as caught:
        refuse_load(b"", ASKED)
    assert (caught.value.reason, caught.value.param) == (Reason.UNSUPPORTED, "model")
    assert "/load" in [operation.path for operation in WHISPER.operations]
