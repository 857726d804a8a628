from typing import Any

import pytest
from msgspec.structs import asdict

from inferd import routing
from inferd.backend.capabilities import BackendCapabilities
from inferd.errors import BackendNotReadyError, InferdError
from inferd.routing import (
    CONSTRAINS_OUTPUT,
    EMBEDS,
    GENERATES,
    GENERATES_OR_TRANSCRIBES,
    GENERATES_V2_OR_TRANSCRIBES,
    HANDLES_AUDIO,
    HAS_REASONING,
    RERANKS,
    SERVES_V2,
    TAKES_AUDIO,
    TAKES_IMAGES,
    TAKES_TOOLS,
    TAKES_VIDEO,
    Requirement,
    route,
    takes_rate,
    transcribes,
)
from tests.fakes.backend import ScriptedBackend

NOTHING: dict[str, Any] = {
    name: False
    for name, value in asdict(BackendCapabilities()).items()
    if isinstance(value, bool)
}


def ready(name="ready", **abilities):
    return ScriptedBackend(name=name, capabilities=BackendCapabilities(**abilities))


def restarting(name="restarting", **abilities):
    backend = ready(name, **abilities)
    backend.go_down()
    return backend


def broken(reason="it is on fire", **abilities):
    backend = ready("broken", **abilities)
    backend.go_down(reason)
    return backend


def refusal(backends, *needs):
    with pytest.raises(InferdError) as caught:
        route(backends, needs)
    return caught.value.code, caught.value.message


# --- who is chosen ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backends", "chosen"),
    [
        ([ready("a"), ready("b")], 0),
        ([restarting(), ready()], 1),
        ([broken(), ready()], 1),
        ([broken(), restarting(), ready()], 2),
        ([broken(), restarting("a"), restarting("b")], 1),
        ([restarting()], 0),
        ([ready(generate=False), restarting()], 1),
        ([ready(generate=False), broken(generate=False), ready("b")], 2),
    ],
)
def test_the_first_ready_backend_is_chosen_before_a_restarting_one(backends, chosen):
    assert route(backends, [GENERATES]) is backends[chosen]


@pytest.mark.parametrize(
    "needs",
    [
        *((TAKES_IMAGES,), (GENERATES, TAKES_IMAGES), (TAKES_IMAGES, GENERATES)),
        (GENERATES, SERVES_V2, TAKES_IMAGES, TAKES_TOOLS),
    ],
)
def test_only_what_can_do_all_that_is_asked_is_chosen(needs):
    backends = [
        ready(v2=True, tools=True),
        ready(vision=True, generate=False, v2=True),
        restarting(vision=True, v2=True, tools=True),
        ready("b", tools=True),
    ]
    assert route(backends, [*needs, TAKES_TOOLS]) is backends[2]


def test_without_requirements_the_first_backend_is_chosen():
    backends = [ready("a", generate=False), ready("b")]
    assert route(backends, []) is backends[0]


@pytest.mark.parametrize(
    ("need", "ability"),
    [
        *((GENERATES, "generate"), (SERVES_V2, "v2"), (TAKES_IMAGES, "vision")),
        *((TAKES_AUDIO, "audio"), (TAKES_VIDEO, "video"), (TAKES_TOOLS, "tools")),
        *((HAS_REASONING, "thinking"), (EMBEDS, "embed"), (RERANKS, "rerank")),
    ],
)
def test_a_need_is_met_by_one_ability(need, ability):
    able = {name: BackendCapabilities(**NOTHING | {name: True}) for name in NOTHING}
    assert [name for name in able if need.is_met_by(able[name])] == [ability]


@pytest.mark.parametrize(
    ("need", "ability"),
    [
        (GENERATES_OR_TRANSCRIBES, "generate"),
        (GENERATES_V2_OR_TRANSCRIBES, "v2"),
        (HANDLES_AUDIO, "audio"),
    ],
)
def test_audio_requirements_are_met_by_transcribing_backends_too(need, ability):
    able = {name: BackendCapabilities(**NOTHING | {name: True}) for name in NOTHING}
    met_by = {name for name in able if need.is_met_by(able[name])}
    assert met_by == {ability, "transcribe"}


def test_sound_goes_to_a_backend_that_takes_its_rate():
    backends = [
        ready("a", audio_sample_rate=16000),
        ready("b", audio_sample_rate=24000),
        ready("c"),
    ]
    rates = {"a": 16000, "b": 24000, "c": 44100}
    for name, rate in rates.items():
        assert route(backends, [takes_rate("s", rate)]).name == name


# --- who is refused ---------------------------------------------------------------------


def test_the_reason_of_the_first_that_could_have_is_given():
    backends = [broken("unable", generate=False), broken("on fire"), broken("drowned")]
    with pytest.raises(BackendNotReadyError, match=r"^backend not ready: on fire$"):
        route(backends, [GENERATES])


REFUSALS = {
    GENERATES: ("backend_unavailable", "no backend available"),
    SERVES_V2: ("internal", 'backend "ready" does not advertise v2 capability'),
    TAKES_IMAGES: ("attachment_unsupported", "no backend takes image attachments"),
    TAKES_AUDIO: ("attachment_unsupported", "no backend answers to audio attachments"),
    TAKES_VIDEO: ("attachment_unsupported", "no backend takes video attachments"),
    TAKES_TOOLS: ("invalid_request", "invalid request: no backend takes tools"),
    HAS_REASONING: (
        "invalid_request",
        "invalid request: thinking true: no backend has a reasoning trace",
    ),
    CONSTRAINS_OUTPUT: (
        "invalid_request",
        "invalid request: no backend holds an answer to a structure",
    ),
    GENERATES_OR_TRANSCRIBES: ("backend_unavailable", "no backend available"),
    GENERATES_V2_OR_TRANSCRIBES: (
        "internal",
        'backend "ready" does not advertise v2 capability',
    ),
    HANDLES_AUDIO: ("attachment_unsupported", "no backend takes audio attachments"),
    EMBEDS: ("backend_unavailable", "no embed-capable backend available"),
    RERANKS: ("backend_unavailable", "no rerank-capable backend available"),
}


def test_every_need_has_a_refusal():
    needs = {each for each in vars(routing).values() if isinstance(each, Requirement)}
    assert needs == set(REFUSALS)


@pytest.mark.parametrize("need", REFUSALS)
@pytest.mark.parametrize("state", [ready, restarting, broken])
def test_an_unmet_requirement_is_refused_by_its_name(need, state):
    backends = [ready(**NOTHING), state(**NOTHING)]
    assert refusal(backends, need) == REFUSALS[need]


@pytest.mark.parametrize("need", [GENERATES, EMBEDS, RERANKS, TAKES_TOOLS])
def test_where_there_is_no_backend_the_first_need_is_refused(need):
    assert refusal([], need, HAS_REASONING) == REFUSALS[need]


def test_the_first_need_that_leaves_nobody_is_the_one_refused():
    backends = [ready(v2=True, thinking=True), broken(v2=True, tools=True)]
    both = (GENERATES, SERVES_V2, TAKES_TOOLS, HAS_REASONING)
    assert refusal(backends, *both) == REFUSALS[HAS_REASONING]
    assert refusal(backends, *reversed(both)) == REFUSALS[TAKES_TOOLS]


def test_the_backend_that_is_named_is_one_that_did_the_rest():
    backends = [ready("a", generate=False), ready("b"), ready("c")]
    assert refusal(backends, GENERATES, SERVES_V2) == (
        "internal",
        'backend "b" does not advertise v2 capability',
    )


def test_a_rate_that_nobody_takes_is_refused_with_both_rates():
    backends = [ready("speech", audio_sample_rate=16000)]
    code, message = refusal(backends, takes_rate("a", 44100))
    assert code == "invalid_request"
    assert message.endswith(
        'attachment "a": sample_rate 44100 is not the 16000 that backend "speech" takes'
    )


def test_a_transcription_without_a_capable_backend_is_refused():
    assert (
        route([ready("a"), ready("b", transcribe=True)], [transcribes("x")]).name == "b"
    )
    assert refusal([ready(audio=True)], HANDLES_AUDIO, transcribes("language")) == (
        "invalid_request",
        "invalid request: language: no backend transcribes speech",
    )


@pytest.mark.parametrize(
    "need",
    [each for each in vars(routing).values() if isinstance(each, routing.Requirement)],
)
def test_an_encoded_constant_decodes_to_itself(need):
    assert routing.decode_requirement(routing.encode_requirement(need)) is need


def test_an_encoded_requirement_decodes_to_an_equal_one():
    for need in (routing.transcribes("x"), routing.takes_rate("a", 8000)):
        again = routing.decode_requirement(routing.encode_requirement(need))
        assert again.encoded == need.encoded
        able = BackendCapabilities()
        assert str(again.refusal("b", able)) == str(need.refusal("b", able))
    with pytest.raises(ValueError, match="no requirement"):
        routing.decode_requirement(["nothing"])
