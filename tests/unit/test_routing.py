from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import asdict

from inferd import routing
from inferd.backend.capabilities import BackendCapabilities
from inferd.errors import (
    BackendNotReadyError,
    BackendUnavailableError,
    InferdError,
    InvalidRequestError,
    ModelNotFoundError,
)
from inferd.limits.protocol import MAX_LISTED_MODELS
from inferd.routing import (
    CONSTRAINS_OUTPUT,
    EMBEDS,
    GENERATES,
    GENERATES_OR_TRANSCRIBES,
    GENERATES_V2_OR_TRANSCRIBES,
    HANDLES_AUDIO,
    HAS_REASONING,
    KNOWS_TOKENS,
    RERANKS,
    SERVES_V2,
    TAKES_AUDIO,
    TAKES_IMAGES,
    TAKES_TOOLS,
    TAKES_VIDEO,
    ModelNames,
    Requirement,
    route,
    takes_rate,
    transcribes,
)
from tests.cases import each_case
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


@each_case(
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


@each_case(
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


@each_case(
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
    backends[1].go_down("on fire", 29_000)
    with pytest.raises(
        BackendNotReadyError, match=r"^backend not ready: on fire$"
    ) as error:
        route(backends, [GENERATES])
    assert error.value.retry_after_ms == 29_000


REFUSALS = {
    KNOWS_TOKENS: (
        "invalid_request",
        "invalid request: input_tokens, token_ids: no model tells ids",
    ),
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


def test_ids_of_tokens_are_known_of_local_models_alone():
    backends = [ready("far", remote=True), ready("near")]
    assert route(backends, [GENERATES, KNOWS_TOKENS]) is backends[1]


def test_every_need_has_a_refusal():
    needs = {each for each in vars(routing).values() if isinstance(each, Requirement)}
    assert needs == set(REFUSALS)


@each_case("need", REFUSALS)
@each_case("state", [ready, restarting, broken])
def test_an_unmet_requirement_is_refused_by_its_name(need, state):
    backends = [ready(**NOTHING), state(**NOTHING)]
    assert refusal(backends, need) == REFUSALS[need]


@each_case("need", [GENERATES, EMBEDS, RERANKS, TAKES_TOOLS])
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


@each_case(
    "need",
    [each for each in vars(routing).values() if isinstance(each, routing.Requirement)],
)
def test_an_encoded_constant_decodes_to_itself(need):
    assert routing.decode_requirement(routing.encode_requirement(need)) is need


def test_an_encoded_requirement_decodes_to_an_equal_one():
    for need in (
        routing.transcribes("x"),
        routing.takes_rate("a", 8000),
        routing.has_context(9),
    ):
        again = routing.decode_requirement(routing.encode_requirement(need))
        assert again.encoded == need.encoded
        able = BackendCapabilities()
        assert str(again.refusal("b", able)) == str(need.refusal("b", able))
    with pytest.raises(ValueError, match="no requirement"):
        routing.decode_requirement(["nothing"])


# --- requests that name their model -----------------------------------------------------

ALIASES = ModelNames({"a": ("fast", "gpt-4o"), "b": ("e5",)})


def test_a_name_is_found_before_an_alias_and_nothing_else_is():
    backends = [ready("a"), ready("b")]
    found = {
        name: ALIASES.find(backends, name)
        for name in ("a", "b", "fast", "gpt-4o", "e5", "A", "", "c", "script")
    }
    assert {name: each.name for name, each in found.items() if each is not None} == {
        "a": "a",
        "b": "b",
        "fast": "a",
        "gpt-4o": "a",
        "e5": "b",
    }
    taken = ModelNames({"a": ("b",)})  # as after a reload beside a removed backend
    assert taken.find(backends, "b") is backends[1]


def test_the_named_backend_answers_whatever_the_state_of_others():
    backends = [ready("a"), restarting("b"), ready("c")]
    for name in "abc":
        assert route(backends, [GENERATES], name).name == name
    assert route(backends, [GENERATES], "e5", ALIASES) is backends[1]


def test_a_named_backend_that_is_out_of_service_is_not_replaced_by_another():
    with pytest.raises(BackendNotReadyError, match="it is on fire"):
        route([ready("a"), broken()], [GENERATES], "broken")


@each_case("model", ["gone", "A", "", "x" * 128])
def test_an_unknown_name_is_refused_with_the_names_that_would_do(model):
    backends = [ready("b", embed=True), broken(), ready("a")]
    with pytest.raises(ModelNotFoundError) as caught:
        route(backends, [GENERATES], model, ALIASES)
    assert caught.value.models == ["b", "e5", "broken", "a", "fast", "gpt-4o"]
    assert caught.value.message == (
        f'model "{model}" is not served here; '
        "names that can do this: b, e5, broken, a, fast, gpt-4o"
    )
    with pytest.raises(ModelNotFoundError) as caught:
        route(backends, [GENERATES, EMBEDS], model)
    assert caught.value.models == ["b"]
    assert not caught.value.closes_connection


def test_a_context_that_is_too_short_is_refused_with_both_numbers():
    small, large = ready("small", n_ctx=512), ready("large", n_ctx=4096)
    backends = [small, large, ready("any")]
    assert route(backends, [routing.has_context(4096)]) is large
    assert route(backends, [routing.has_context(512)], "small") is small
    with pytest.raises(ModelNotFoundError) as caught:
        route(backends, [routing.has_context(513)], "small")
    assert caught.value.message == (
        'model "small" has no support for a context of 513 tokens, only for one of 512; '
        "names that can do this: large, any"
    )
    with pytest.raises(InvalidRequestError, match="has 512 tokens, 513 are asked"):
        route([small], [routing.has_context(513)])


def test_a_name_that_cannot_do_what_is_asked_is_refused_with_what_it_lacks():
    backends = [ready("a"), ready("b", generate=False, embed=True)]
    with pytest.raises(ModelNotFoundError) as caught:
        route(backends, [EMBEDS], "fast", ALIASES)
    assert caught.value.message == (
        'model "fast" has no support for embeddings; names that can do this: b, e5'
    )
    with pytest.raises(ModelNotFoundError) as caught:
        route(backends, [GENERATES, TAKES_IMAGES], "a")
    assert caught.value.message == (
        'model "a" has no support for image attachments; no model here can do this'
    )


WORDS = st.text("abcX:/", min_size=1, max_size=3)


@st.composite
def named_backends(draw):
    """Draw backends with capabilities, states and unique names and aliases."""
    words = draw(st.lists(WORDS, min_size=1, max_size=8, unique=True))
    backends: list[ScriptedBackend] = []
    aliases: dict[str, list[str]] = {}
    for word in words:
        if not backends or draw(st.booleans()):
            abilities = {"generate": draw(st.booleans()), "embed": draw(st.booleans())}
            make = draw(st.sampled_from([ready, restarting]))
            backends.append(make(word, **abilities))
            aliases[word] = []
        else:
            aliases[backends[-1].name].append(word)
    return backends, aliases


@settings(max_examples=50)
@given(
    named=named_backends(),
    model=WORDS,
    needs=st.lists(st.sampled_from([GENERATES, EMBEDS]), unique=True),
)
def test_a_name_is_answered_by_its_backend_or_by_none(named, model, needs):
    backends, aliases = named
    able = [
        each
        for each in backends
        if all(need.is_met_by(each.capabilities) for need in needs)
    ]
    names = ModelNames(aliases)
    would_do = [name for each in able for name in (each.name, *aliases[each.name])]
    if model in would_do:
        chosen = route(backends, needs, model, names)
        assert chosen in able
        assert model in (chosen.name, *aliases[chosen.name])
    else:
        with pytest.raises(ModelNotFoundError) as caught:
            route(backends, needs, model, names)
        assert caught.value.models == would_do


def test_names_are_listed_up_to_a_bound():
    aliases = {"a": [f"alias{number}" for number in range(2 * MAX_LISTED_MODELS)]}
    with pytest.raises(ModelNotFoundError) as caught:
        route([ready("a")], [GENERATES], "x", ModelNames(aliases))
    assert caught.value.models == ["a", *aliases["a"][: MAX_LISTED_MODELS - 1]]


def test_replaced_aliases_are_found_from_then_on():
    names = ModelNames({"a": ("old",)})
    names.replace({"a": ("new",)})
    backends = [ready("a")]
    assert names.find(backends, "old") is None
    assert names.find(backends, "new") is backends[0]


@each_case("need", [*REFUSALS, transcribes("x"), takes_rate("a", 8000)])
def test_what_a_named_model_lacks_is_said(need):
    with pytest.raises(ModelNotFoundError, match=f"no support for {need.subject};"):
        route(
            [ready("a", **NOTHING | {"audio_sample_rate": 1})],
            [need],
            "a",
            ModelNames(),
        )


# --- models of the store ----------------------------------------------------------------


def with_store(*stored: str, **aliases: tuple[str, ...]) -> ModelNames:
    names = ModelNames(aliases)
    names.replace_stored(stored)
    return names


def test_requests_without_a_name_do_not_go_to_the_store():
    backends = [ready("chat", embed=False), ready("team/x", embed=True)]
    names = with_store("team/x", "team/y", chat=())
    assert route(backends, [GENERATES], names=names) is backends[0]
    with pytest.raises(InferdError, match="no embed-capable backend"):
        route(backends, [EMBEDS], names=names)
    assert route(backends, [EMBEDS], "team/x", names) is backends[1]


def test_the_only_model_that_is_served_needs_no_name():
    names = with_store("team/x")
    backends = [ready("team/x")]
    assert names.stored_name(None) == "team/x"
    assert route(backends, [GENERATES], names=names) is backends[0]
    assert with_store("team/x", chat=()).stored_name(None) is None
    names = with_store("team/x", "team/y")
    assert names.stored_name(None) is None
    for known in ([], backends):
        with pytest.raises(InferdError, match='"model" may be one of team/x, team/y'):
            route(known, [GENERATES], names=names)


def test_only_models_that_may_serve_a_request_are_named_to_it():
    names = with_store("team/chat", "team/unread")
    known = [ready("team/chat", embed=False)]
    with pytest.raises(BackendUnavailableError, match="may be one of team/unread$"):
        route(known, [EMBEDS], names=names)
    known.append(ready("team/unread", embed=False))
    with pytest.raises(BackendUnavailableError, match="no embed-capable backend"):
        route(known, [EMBEDS], names=names)


def test_the_names_of_backends_stand_before_those_of_the_store():
    names = with_store("chat", "fast", "team/x", chat=("fast",))
    assert [names.stored_name(each) for each in ("chat", "fast", "team/x")] == [
        None,
        None,
        "team/x",
    ]
    chat = ready("chat")
    assert route([chat], [GENERATES], names=names) is chat
    names.replace({})
    assert names.stored_name("fast") == "fast"


def test_models_whose_headers_have_not_been_read_are_listed_last():
    backends = [ready("chat"), ready("team/x", generate=False, embed=True)]
    names = with_store("team/a", "team/x", "team/y", chat=("fast",))
    with pytest.raises(ModelNotFoundError) as caught:
        route(backends, [GENERATES], "gone", names)
    assert caught.value.models == ["chat", "fast", "team/a", "team/y"]
    many = with_store(*(f"m{number}" for number in range(2 * MAX_LISTED_MODELS)))
    with pytest.raises(ModelNotFoundError) as caught:
        route([], [GENERATES], "gone", many)
    assert len(caught.value.models) == MAX_LISTED_MODELS
