from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from inferd.backend.capabilities import (
    AcceleratorInfo,
    AcceleratorKind,
    BackendCapabilities,
)
from inferd.backend.job import (
    EmbedJob,
    GenerateJob,
    PastCall,
    RerankJob,
    Sampling,
    Structure,
    ToolChoice,
    ToolSpec,
    Turn,
)
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.mock import MockSettings
from inferd.ipc.encoding import (
    MalformedMessageError,
    MessageSplitter,
    decode_from_worker,
    decode_settings,
    decode_to_preparer,
    decode_to_worker,
    encode,
    encode_content,
    encode_in_parts,
)
from inferd.ipc.preparer import Render
from inferd.ipc.worker import (
    CpuVariant,
    Drop,
    Embedded,
    Ended,
    Failed,
    Heartbeat,
    Load,
    Loaded,
    LoadFailed,
    Loading,
    Prepare,
    PromptOverflow,
    PromptReady,
    ReceivedLoad,
    Refused,
    Run,
    SandboxReport,
    Scored,
    Step,
)
from inferd.limits.engine import MAX_IPC_MESSAGE_BYTES
from inferd.memory.plan import LinearSize, MemoryDemand, MemoryShare
from inferd.resolve.embed import resolve_embed
from inferd.resolve.rerank import resolve_rerank
from inferd.resolve.v1 import resolve_v1
from inferd.resolve.v2 import resolve_v2
from inferd.wire import blocks, codec
from inferd.wire.requests import (
    ChatMessage,
    EmbedRequest,
    GenerateRequest,
    RerankRequest,
)
from inferd.wire.responses import Usage
from tests.cases import each_case
from tests.fakes.starting import decode_load_too
from tests.unit.strategies import FINITE, U32, chunked
from tests.unit.wire.responses import LOGPROB

TICKETS = st.integers(0, 2**63)
NAMES = st.sampled_from(["a", "chat-1.5"])
SETTINGS = st.builds(
    MockSettings,
    name=NAMES,
    tokens=st.lists(st.text(max_size=8), max_size=3).map(tuple),
    die_at_load=st.booleans(),
) | st.builds(
    LlamaCppSettings,
    name=NAMES,
    model=st.text(
        st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8
    ),
    sha256=st.none() | st.just("0" * 64),
    n_ctx=st.none() | st.integers(8, 2**20),
    serves=st.none() | st.sampled_from(["generate", "embed", "rerank"]),
    embed_pooling=st.none() | st.integers(1, 4),
    chat_template=st.none() | st.just("qwen3-coder"),
)
SAMPLING = st.builds(
    Sampling,
    temperature=st.none() | FINITE,
    top_p=st.none() | FINITE,
    top_k=st.none() | U32,
    min_p=st.none() | FINITE,
    repeat_penalty=FINITE,
    presence_penalty=FINITE,
    frequency_penalty=FINITE,
    logit_bias=st.dictionaries(U32, FINITE, max_size=2),
    seed=U32,
)
TURNS = st.builds(
    Turn,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.text(),
    calls=st.lists(
        st.builds(PastCall, id=st.text(), name=st.text(), arguments=st.text()),
        max_size=2,
    ).map(tuple),
    call_id=st.text(),
    name=st.text(),
)
TOOLS = st.builds(
    ToolSpec, name=st.text(), description=st.text(), input_schema=st.text()
)
TEXTS = st.lists(st.text(), max_size=2)
JOBS = st.one_of(
    st.builds(
        GenerateJob,
        turns=st.lists(TURNS, max_size=3),
        tools=st.lists(TOOLS, max_size=2).map(tuple),
        tool_choice=st.builds(
            ToolChoice, st.sampled_from(["auto", "named"]), st.text()
        ),
        thinks=st.booleans(),
        structure=st.none()
        | st.builds(Structure, kind=st.just("regex"), source=st.text()),
        max_tokens=U32,
        min_tokens=U32,
        sampling=SAMPLING,
        stops=TEXTS.map(tuple),
        stop_token_ids=st.lists(U32, max_size=2).map(tuple),
        n_alternatives=U32,
        prefill_only=st.booleans(),
        wants_progress=st.booleans(),
    ),
    st.builds(
        EmbedJob, texts=TEXTS, dimensions=st.none() | U32, task=st.none() | st.text()
    ),
    st.builds(
        EmbedJob,
        tokens=st.lists(st.lists(U32)),
        dimensions=st.none() | U32,
        task=st.none(),
    ),
    st.builds(RerankJob, query=st.text(), documents=TEXTS),
)
TO_WORKER = st.one_of(
    st.builds(Load, settings=SETTINGS, n_slots=U32),
    st.builds(MemoryShare, n_slots=U32, n_ctx=U32),
    st.builds(Prepare, ticket=TICKETS, job=JOBS),
    st.builds(Run, ticket=TICKETS),
    st.builds(Drop, ticket=TICKETS),
)
ENDED = st.builds(
    Ended,
    ticket=TICKETS,
    stop_reason=st.sampled_from(["end", "length", "cancelled", "error"]),
    usage=st.builds(Usage, U32, U32, U32),
    stop_token_id=st.none() | U32,
)
FROM_WORKER = st.one_of(
    st.builds(
        SandboxReport,
        landlock=U32,
        seccomp=st.booleans(),
        files_unrestricted=st.booleans(),
    ),
    st.builds(
        Loading,
        phase=st.sampled_from(["checking_local", "verify", "mmap", "kv_cache"]),
        path=st.text(),
        n_ctx=U32,
    ),
    st.builds(LoadFailed, reason=st.text()),
    st.builds(CpuVariant, name=st.text(), fallback=st.text()),
    st.builds(
        MemoryDemand,
        n_ctx=st.integers(1, 2**31 - 1),
        is_set=st.booleans(),
        has_slots=st.booleans(),
        weights=st.integers(0, 2**62),
        own=st.integers(0, 2**62),
        cache=st.builds(LinearSize, fixed=st.integers(-5, 2**62), per_token=U32),
    ),
    st.builds(
        Loaded,
        capabilities=st.builds(
            BackendCapabilities,
            model=st.text(),
            n_ctx=U32,
            accelerator=st.builds(
                AcceleratorInfo, kind=st.sampled_from(AcceleratorKind), gpu_layers=U32
            ),
        ),
        library=st.text(),
    ),
    st.just(Heartbeat()),
    st.builds(PromptReady, ticket=TICKETS, prompt_tokens=U32, open_thought=st.text()),
    st.builds(Refused, ticket=TICKETS, reason=st.text()),
    st.builds(
        PromptOverflow,
        ticket=TICKETS,
        prompt_tokens=U32,
        n_ctx=U32,
        at_least=st.booleans(),
    ),
    st.builds(
        Step,
        pieces=st.lists(st.tuples(TICKETS, st.binary(max_size=8)), max_size=3),
        logprobs=st.lists(st.tuples(TICKETS, LOGPROB), max_size=2),
        prefilled=st.lists(st.tuples(TICKETS, U32), max_size=2),
        ended=st.lists(ENDED, max_size=2),
    ),
    st.builds(
        Embedded,
        ticket=TICKETS,
        embeddings=st.binary(),
        dimensions=U32,
        is_last=st.booleans(),
    ),
    st.builds(Scored, ticket=TICKETS, scores=st.lists(st.floats(allow_nan=False))),
    st.builds(Failed, ticket=TICKETS, reason=st.text(), by_request=st.booleans()),
)


LOAD = Load(settings=MockSettings(name="m", tokens=("é",)), n_slots=1)


def payload_of(message):
    return encode(message)[4:]


# --- messages -------------------------------------------------------------------------


@settings(max_examples=60)
@given(TO_WORKER)
def test_a_message_to_a_worker_survives_encoding(message):
    assert decode_load_too(payload_of(message)) == message


def test_settings_are_decoded_by_the_type_of_their_kind_alone():
    load = decode_to_worker(payload_of(LOAD))
    assert isinstance(load, ReceivedLoad)
    assert decode_settings(load, MockSettings) == LOAD.settings
    with pytest.raises(MalformedMessageError, match="'mock'"):
        decode_settings(load, LlamaCppSettings)


def test_settings_that_are_no_text_are_malformed():
    payload = payload_of(LOAD).replace("é".encode(), b"\xff\xff")
    load = decode_to_worker(payload)
    assert isinstance(load, ReceivedLoad)
    with pytest.raises(MalformedMessageError):
        decode_settings(load, MockSettings)


@settings(max_examples=60)
@given(FROM_WORKER)
def test_a_message_from_a_worker_survives_encoding(message):
    assert decode_from_worker(payload_of(message)) == message


@settings(max_examples=50)
@given(FROM_WORKER | TO_WORKER)
def test_a_message_begins_with_its_length(message):
    data = encode(message)
    assert int.from_bytes(data[:4], "little") == len(data) - 4


@settings(max_examples=60)
@given(
    st.binary(max_size=40),
    (TO_WORKER | FROM_WORKER).map(payload_of),
    st.integers(0, 200),
)
def test_any_payload_is_a_message_or_malformed(noise, payload, place):
    damaged = payload[:place] + noise + payload[place + len(noise) :]
    for decode in (decode_to_worker, decode_from_worker):
        for each in (noise, payload[:place], damaged):
            with suppress(MalformedMessageError):
                decode(each)


@each_case("decode", [decode_to_worker, decode_from_worker])
@each_case(
    "payload",
    [
        *(b"", b"\xc0", b"\x80", b"\x91" * 100_000, b"\x81\xa1x" * 100_000),
        *(b"\xa1\xff", b"\x81\xa4type\xa5Never", b"\xd6\xff\xff\xff\xff\xff"),
        *(b"\xdd\xff\xff\xff\xff", payload_of(Heartbeat()) + b"\x00"),
        payload_of(LoadFailed(reason="é")).replace("é".encode(), b"\xff\xff"),
    ],
)
def test_other_bytes_are_malformed(decode, payload):
    with pytest.raises(MalformedMessageError):
        decode(payload)


def test_each_side_sends_only_its_own_messages():
    with pytest.raises(MalformedMessageError):
        decode_to_worker(payload_of(Heartbeat()))
    with pytest.raises(MalformedMessageError):
        decode_from_worker(payload_of(Run(ticket=1)))


TEXT = st.text(min_size=1, max_size=20)


def few(values):
    """Up to four, and at least one."""
    return st.lists(values, min_size=1, max_size=4)


REQUESTS = st.one_of(
    st.builds(
        GenerateRequest,
        messages=few(st.builds(ChatMessage, st.just("user"), TEXT)),
        grammar=st.text(),
        stop=st.lists(TEXT, max_size=3),
    ).map(lambda each: (each, resolve_v1(each, seed=2**32 - 2))),
    st.builds(
        blocks.BlocksRequest,
        messages=few(
            st.builds(
                blocks.Message,
                st.just("user"),
                st.lists(st.builds(blocks.TextBlock, TEXT), min_size=1, max_size=3),
            )
        ),
        logit_bias=st.dictionaries(U32.map(str), st.integers(0, 100), max_size=9),
        stop_token_ids=st.lists(U32, max_size=5),
    ).map(lambda each: (each, resolve_v2(each, seed=2**32 - 2))),
    st.builds(EmbedRequest, input=few(TEXT)).map(
        lambda each: (each, resolve_embed(each))
    ),
    st.builds(RerankRequest, query=TEXT, documents=few(TEXT)).map(
        lambda each: (each, resolve_rerank(each))
    ),
)


@settings(max_examples=40)
@given(REQUESTS)
def test_a_request_grows_little_on_its_way_to_the_worker(resolved):
    request, plan = resolved
    message = encode(Prepare(ticket=2**63, job=plan.job))
    assert len(message) < 2 * len(codec.encode(request)) + 300


def test_a_message_over_the_cap_is_not_sent(monkeypatch):
    message = LoadFailed(reason="x" * 50)
    size = len(payload_of(message))
    monkeypatch.setattr("inferd.ipc.encoding.MAX_IPC_MESSAGE_BYTES", size)
    assert len(payload_of(message)) == size
    monkeypatch.setattr("inferd.ipc.encoding.MAX_IPC_MESSAGE_BYTES", size - 1)
    with pytest.raises(
        MalformedMessageError, match=f"^a message of {size} bytes is over"
    ):
        encode(message)


# --- framing --------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=12), max_size=6), st.binary(max_size=3), st.data())
def test_any_chunking_gives_the_same_payloads(payloads, rest, data):
    stream = b"".join(len(each).to_bytes(4, "little") + each for each in payloads)
    splitter = MessageSplitter()
    received: list[bytearray] = []
    for chunk in data.draw(chunked(stream + rest)):
        splitter.feed(chunk)
        received += iter(splitter.next_payload, None)
    assert received == payloads


def test_a_message_of_exactly_the_cap_may_be_announced():
    splitter = MessageSplitter()
    splitter.feed(MAX_IPC_MESSAGE_BYTES.to_bytes(4, "little"))
    assert splitter.next_payload() is None


@pytest.mark.parametrize("n_bytes", [MAX_IPC_MESSAGE_BYTES + 1, 2**32 - 1])
def test_a_message_over_the_cap_is_refused_when_it_is_announced(n_bytes):
    splitter = MessageSplitter()
    splitter.feed(n_bytes.to_bytes(4, "little"))
    with pytest.raises(
        MalformedMessageError, match=f"^a message of {n_bytes} bytes is ann"
    ):
        splitter.next_payload()


def test_a_splitter_is_empty_when_all_is_taken():
    splitter = MessageSplitter()
    assert splitter.is_empty
    splitter.feed(encode(Heartbeat()) + b"\x01")
    splitter.next_payload()
    assert not splitter.is_empty
    splitter.feed(b"\x00\x00\x00\xc0")
    splitter.next_payload()
    assert splitter.is_empty


GENERATE = GenerateJob(
    turns=[Turn("user", "hello")],
    max_tokens=1,
    sampling=Sampling(temperature=None, top_p=None, top_k=None, seed=1),
)

TOKENS = msgspec.structs.replace(GENERATE, turns=[], input_tokens=[7, 2**32 - 1])


@pytest.mark.parametrize(
    ("job", "empty"),
    [
        (EmbedJob(texts=["a", "é"], dimensions=3, task=None), {"texts": ["", ""]}),
        (
            EmbedJob(tokens=[[1, 2**32 - 1], [0]], dimensions=3, task=None),
            {"tokens": [[], []]},
        ),
        (GENERATE, {"turns": []}),
        (TOKENS, {"input_tokens": [7]}),
    ],
)
def test_content_is_sent_apart_and_restored_in_the_worker(job, empty):
    content = encode_content(job)
    light = msgspec.structs.replace(job, content=msgspec.Raw(content), **empty)
    head, rest = encode_in_parts(Prepare(ticket=7, job=light))
    assert bytes(rest) == content
    [payload] = payloads(bytes(head) + bytes(rest))
    assert decode_to_worker(payload) == Prepare(ticket=7, job=job)


@pytest.mark.parametrize(
    ("whole", "empty"), [(GENERATE, {"turns": []}), (TOKENS, {"input_tokens": [7]})]
)
def test_content_is_restored_in_the_preparer_too(whole, empty):
    content = msgspec.Raw(encode_content(whole))
    light = msgspec.structs.replace(whole, content=content, **empty)
    asked = Render(ticket=7, job=light, known_grammars=(b"k" * 32,))
    head, rest = encode_in_parts(asked)
    [payload] = payloads(bytes(head) + bytes(rest))
    assert decode_to_preparer(payload) == msgspec.structs.replace(asked, job=whole)


def test_a_job_that_another_process_has_read_is_not_plain():
    light = msgspec.structs.replace(
        GENERATE, content=msgspec.Raw(encode_content(GENERATE)), turns=[]
    )
    assert GENERATE.is_plain
    assert not light.is_plain


def test_a_job_without_content_is_one_part():
    assert encode_in_parts(Run(ticket=1)) == [encode(Run(ticket=1))]


def payloads(data: bytes) -> list[bytearray]:
    splitter = MessageSplitter()
    splitter.feed(data)
    found = []
    while (payload := splitter.next_payload()) is not None:
        found.append(payload)
    return found


TOO_LONG = (2**27).to_bytes(4, "big")
LISTS = {
    "scores": b"\x83\xa4type\xa6Scored\xa6ticket\x01\xa6scores\xdd" + TOO_LONG,
    "pieces": b"\x82\xa4type\xa4Step\xa6pieces\xdd" + TOO_LONG,
    "ends": b"\x82\xa4type\xa4Step\xa5ended\xdd" + TOO_LONG,
    "segments": b"\x83\xa4type\xabTranscribed\xa6ticket\x01\xa8segments\xdd" + TOO_LONG,
    "what is missing": b"\x82\xa4type\xadSandboxReport\xa7missing\xdd" + TOO_LONG,
}


@each_case("what", LISTS)
def test_a_list_that_is_too_long_is_refused_before_anything_in_it_is_decoded(what):
    with pytest.raises(MalformedMessageError, match="Expected `array` of length"):
        decode_from_worker(LISTS[what])
