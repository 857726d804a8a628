"""Fields of forms, which are texts, and the types that they become."""

import math
from typing import Literal

import pytest
from hypothesis import given, strategies as st
from msgspec import Struct, field

from inferd.bridge.recordings.form import Form, read_form
from inferd.bridge.recordings.transcript import Temperature
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.fields import FieldTable, honoured, ignored, refused
from inferd.resolve.transcription import LANGUAGES
from inferd.wire.languages import LANGUAGE_NAMES, language_code
from tests.cases import each_case

TABLE = FieldTable(
    "POST /form",
    (
        *honoured("file", "prompt", "temperature", "stream", "kinds[]"),
        *ignored("mood"),
        *refused("step", note="it is 0.2", neutral=(0.2,)),
        *refused("vad", note="there is none", neutral=("false", "0")),
        *refused("include[]", note="there is nothing to include"),
    ),
)


class Wanted(Struct, kw_only=True):
    prompt: str | None = None
    temperature: Temperature | None = None
    stream: bool = False
    kinds: list[Literal["word", "segment"]] = field(
        default_factory=list, name="kinds[]"
    )


def read(*fields: tuple[str, str]) -> Wanted:
    return read_form(Form(fields, b"sound"), TABLE, Wanted)


@given(
    st.text(min_size=1),
    st.floats(0, 2),
    st.booleans(),
    st.lists(st.sampled_from(["word", "segment"])),
    st.randoms(use_true_random=False),
)
def test_texts_become_what_they_say_in_whatever_order(
    prompt, temperature, is_streamed, kinds, random
):
    fields = [
        ("prompt", prompt),
        ("temperature", repr(temperature)),
        ("stream", random.choice(["true", "True", "1"]) if is_streamed else "false"),
        *((random.choice(["kinds", "kinds[]"]), kind) for kind in sorted(kinds)),
        ("mood", "any"),
        ("vad", random.choice(["false", "0"])),
        ("step", random.choice(["0.2", "0.20", "2e-1"])),
    ]
    random.shuffle(fields)
    found = read(*fields)
    assert (found.prompt, found.temperature, found.stream) == (
        prompt,
        temperature,
        is_streamed,
    )
    assert sorted(found.kinds) == sorted(kinds)


@given(st.text(), st.text())
def test_no_text_of_a_field_leads_to_anything_but_a_value_or_a_failure_with_its_name(
    first, second
):
    try:
        found = read(("temperature", first), ("stream", second))
    except BridgeError as error:
        named = error.param
        assert named in {"temperature", "stream"}
    else:
        assert found.temperature is None or math.isfinite(found.temperature)


def test_an_empty_text_sets_nothing():
    found = read(("temperature", ""), ("kinds[]", ""), ("vad", ""), ("prompt", ""))
    assert found == Wanted()


@each_case(
    ("fields", "reason", "param", "words"),
    [
        ([("volume", "3")], Reason.UNKNOWN_FIELD, "volume", "volume"),
        ([("prompt[]", "x")], Reason.UNKNOWN_FIELD, "prompt[]", "prompt"),
        ([("file", "x")], Reason.INVALID_REQUEST, "file", "twice"),
        ([("prompt", "x")] * 2, Reason.INVALID_REQUEST, "prompt", "twice"),
        ([("temperature", "warm")], Reason.INVALID_REQUEST, "temperature", "'warm'"),
        ([("temperature", "nan")], Reason.INVALID_REQUEST, "temperature", ">= 0"),
        ([("temperature", "3")], Reason.INVALID_REQUEST, "temperature", "<= 2"),
        ([("stream", "maybe")], Reason.INVALID_REQUEST, "stream", "'maybe'"),
        ([("kinds[]", "line")], Reason.INVALID_REQUEST, "kinds[][0]", "'line'"),
        ([("step", "0.3")], Reason.UNSUPPORTED, "step", "it is 0.2"),
        ([("vad", "true")], Reason.UNSUPPORTED, "vad", "there is none"),
        ([("include", "x")], Reason.UNSUPPORTED, "include[]", "nothing to include"),
        ([("v" * 9999, "3")], Reason.UNKNOWN_FIELD, "v" * 512, "vvv"),
    ],
)
def test_a_field_that_is_refused_is_named(fields, reason, param, words):
    with pytest.raises(BridgeError) as caught:
        read(*fields)
    assert (caught.value.reason, caught.value.param) == (reason, param)
    assert words in str(caught.value)


def test_each_language_of_the_daemon_has_a_name():
    assert set(LANGUAGE_NAMES) == set(LANGUAGES)
    assert len(set(LANGUAGE_NAMES.values())) == len(LANGUAGES)
    for code, name in LANGUAGE_NAMES.items():
        assert language_code(name.title()) == language_code(code.upper()) == code
    assert language_code("tlh") == "tlh"


@pytest.mark.parametrize("rest", [[], [("vad[other]", "0")]])
def test_a_part_of_a_refused_field_is_refused_with_its_reason(rest):
    with pytest.raises(BridgeError, match="vad: there is none") as caught:
        read(("vad[type]", "false"), *rest)
    assert (caught.value.reason, caught.value.param) == (Reason.UNSUPPORTED, "vad")
