import io
import math

import pytest
from hypothesis import given, strategies as st

from inferd.models.file_error import ModelFileError
from inferd.models.gguf_header.header import read_header
from inferd.models.gguf_header.rules import MODEL_RULES, PROJECTOR_RULES
from tests.cases import each_case
from tests.fakes.gguf_bytes import (
    ARRAY,
    BOOL,
    F32_VALUE,
    I32,
    TEXT,
    U8,
    U32,
    U64,
    array,
    gguf,
    number,
    numbers,
    pair,
    text,
    with_number,
)
from tests.model.tiny import write_tiny_bert, write_tiny_mamba, write_tiny_model
from tests.model.tiny_projector import write_tiny_projector

LARGEST = 2**32 - 1
SHAPE = {
    "context_length": 4096,
    "embedding_length": 64,
    "block_count": 2,
}
WORDS = 10


def refusal(content: bytes) -> str | None:
    """Read a header; give why it is refused, if it is."""
    try:
        read_header(io.BytesIO(content), len(content))
    except ModelFileError as error:
        return str(error)
    return None


def model(*pairs: bytes, heads: int = 4, **shape: int) -> bytes:
    """Write the header of a model with a vocabulary, and further keys."""
    told = {**SHAPE, "attention.head_count": heads, **shape}
    known = [number(f"llama.{key}", U32, value) for key, value in told.items()]
    tokens = array(TEXT, WORDS, text(b"w") * WORDS)
    return gguf(
        pairs=[
            pair(b"general.architecture", TEXT, text(b"llama")),
            pair(b"tokenizer.ggml.tokens", ARRAY, tokens),
            *known,
            *pairs,
        ]
    )


def u32(key: str, value: int) -> bytes:
    return number(f"llama.{key}", U32, value)


def f32(key: str, value: float) -> bytes:
    return number(f"llama.{key}", F32_VALUE, value)


def layers(key: str, *values: int, kind: int = U32) -> bytes:
    return numbers(f"llama.{key}", kind, values)


# --- what models have ---------------------------------------------------------------------

FINE = {
    "no more than that": model(),
    "the largest context in use": model(context_length=10_485_760),
    "the first token": model(number("tokenizer.ggml.bos_token_id", U32, 0)),
    "the last token": model(number("tokenizer.ggml.eos_token_id", U32, WORDS - 1)),
    "scores": model(numbers("tokenizer.ggml.scores", F32_VALUE, [-1e4] * WORDS)),
    "scores by rank": model(numbers("tokenizer.ggml.scores", I32, [-9] * WORDS)),
    "types of tokens": model(
        numbers("tokenizer.ggml.token_type", I32, [0, 1, 2, 3, 4, 5, 6, 1, 1, 1])
    ),
    "tokens that are suppressed": model(
        numbers("tokenizer.ggml.suppress_tokens", I32, [0, 9])
    ),
    "none that are": model(numbers("tokenizer.ggml.suppress_tokens", I32, [])),
    "heads that share keys": model(u32("attention.head_count_kv", 2)),
    "layers with keys of their own": model(layers("attention.head_count_kv", 0, 2)),
    "heads with a width of their own": model(
        u32("attention.key_length", 128), embedding_length=65
    ),
    "a window": model(u32("attention.sliding_window", 512)),
    "no window": model(u32("attention.sliding_window", 0)),
    "a window for some layers": model(
        layers("attention.sliding_window_pattern", 0, 1, kind=BOOL)
    ),
    "experts": model(u32("expert_count", 8), u32("expert_used_count", 2)),
    "no experts": model(u32("expert_count", 0), u32("expert_used_count", 0)),
    "experts in groups": model(
        u32("expert_count", 256),
        u32("expert_used_count", 8),
        u32("expert_group_count", 8),
        u32("expert_group_used_count", 4),
    ),
    "a base of turns": model(f32("rope.freq_base", 1e11)),
    "a scaling": model(pair(b"llama.rope.scaling.type", TEXT, text(b"yarn"))),
    "what is unknown": model(u32("something.new", 7), f32("new", -3.5)),
    "a sampling that is no number, which is asked for later": model(
        number("general.sampling.temp", F32_VALUE, math.nan)
    ),
    "what others say": model(number("general.parameter_count", U64, 2**40)),
    "a vocabulary of numbers": gguf(
        pairs=[
            pair(b"general.architecture", TEXT, text(b"llama")),
            u32("vocab_size", 20),
            number("tokenizer.ggml.bos_token_id", U32, 19),
        ]
    ),
}


@each_case("content", FINE.values(), ids=FINE)
def test_values_of_real_models_are_allowed(content):
    assert refusal(content) is None


@pytest.mark.parametrize(
    "write", [write_tiny_model, write_tiny_bert, write_tiny_mamba, write_tiny_projector]
)
def test_small_models_of_all_kinds_are_allowed(write, tmp_path):
    assert refusal(write(tmp_path / "m.gguf").read_bytes()) is None


# --- what none has ------------------------------------------------------------------------

WRONG = {
    "no context": (model(context_length=0), "'llama.context_length' is 0, from 8 to"),
    "a context of all": (model(context_length=LARGEST), "is 4294967295, from 8 to 134"),
    "no layers": (model(block_count=0), "'llama.block_count' is 0"),
    "layers without end": (model(block_count=513), "is 513, from 1 to 512"),
    "no width": (model(embedding_length=0), "'llama.embedding_length' is 0"),
    "a huge width": (model(embedding_length=2**31), "'llama.embedding_length' is 2147"),
    "heads without end": (model(heads=5000), "is 5000"),
    "heads that do not fit": (model(heads=5), "cannot share 64"),
    "keys that do not": (model(u32("attention.head_count_kv", 3)), "cannot share 3 of"),
    "keys of one layer": (
        model(layers("attention.head_count_kv", 2, 3)),
        "cannot share 3 of keys",
    ),
    "too few layers": (
        model(layers("attention.head_count_kv", 2, 2, 2)),
        "2 layers have 3 numbers of attention.head_count_kv",
    ),
    "keys without width": (model(u32("attention.key_length", 0)), "is 0, from 1"),
    "a window beyond": (model(u32("attention.sliding_window", LARGEST)), "429496729"),
    "an odd turn": (model(u32("rope.dimension_count", 15)), "is odd"),
    "more turned than there is": (
        model(u32("rope.dimension_count", 18)),
        "18 of a head's 16 dimensions are rotated",
    ),
    "a base of nothing": (model(f32("rope.freq_base", 0)), "is 0.0, from 1e-06"),
    "a base below nothing": (model(f32("rope.freq_base", -1e4)), "rope.freq_base"),
    "a base of no number": (model(f32("rope.freq_base", math.nan)), "is not finite"),
    "nothing added": (
        model(f32("attention.layer_norm_rms_epsilon", 0)),
        "is 0.0, from 1e-15",
    ),
    "less added": (model(f32("attention.layer_norm_epsilon", -1e-5)), "from 1e-15"),
    "all added": (model(f32("attention.layer_norm_epsilon", math.inf)), "not finite"),
    "an unknown scaling": (
        model(pair(b"llama.rope.scaling.type", TEXT, text(b"quadratic"))),
        "is of an unknown kind",
    ),
    "a pooling that there is not": (model(u32("pooling_type", 5)), "is 5, from 0 to 4"),
    "more experts used than there are": (
        model(u32("expert_count", 8), u32("expert_used_count", 9)),
        "9 of 8 experts are used",
    ),
    "no expert used": (model(u32("expert_count", 8)), "0 of 8 experts are used"),
    "experts without end": (model(u32("expert_count", 2**20)), "from 0 to 1024"),
    "uneven groups": (
        model(
            u32("expert_count", 8),
            u32("expert_used_count", 2),
            u32("expert_group_count", 3),
        ),
        "8 experts cannot be in 3 groups",
    ),
    "no group used": (
        model(
            u32("expert_count", 8),
            u32("expert_used_count", 2),
            u32("expert_group_count", 4),
        ),
        "0 of 4 groups",
    ),
    "guesses of more layers": (
        model(u32("nextn_predict_layers", 3)),
        "3 of 2 layers predict",
    ),
    "an unknown number": (model(u32("something.new", LARGEST)), "is 4294967295, over"),
    "an unknown number that is none": (model(f32("new", math.nan)), "is not finite"),
    "a long list": (
        model(numbers("llama.new", U8, bytes(65_537))),
        "has 65537 numbers, over 65536",
    ),
    "a list of infinities": (
        model(numbers("llama.xielu.alpha_n", F32_VALUE, [1, math.inf])),
        "is not finite",
    ),
    "another type": (
        model(number("llama.rope.freq_base", U32, 10_000)),
        "has numbers of type 4",
    ),
    "a text for a number": (
        model(pair(b"llama.vocab_size", TEXT, text(b"10"))),
        "is not a number",
    ),
    "a list for a number": (model(layers("vocab_size", 10)), "is not a number"),
    "an empty list": (model(layers("feed_forward_length")), "has 0 numbers, from 1"),
    # --- the vocabulary
    "a token behind the last": (
        model(number("tokenizer.ggml.eos_token_id", U32, WORDS)),
        "names the token 10 of a vocabulary of 10",
    ),
    "no token": (
        model(number("tokenizer.ggml.padding_token_id", U32, LARGEST)),
        "names the token 4294967295 of",
    ),
    "a token below the first": (
        model(number("tokenizer.ggml.eot_token_id", I32, -1)),
        "names the token -1 of",
    ),
    "a token that is a half": (
        model(number("tokenizer.ggml.bos_token_id", F32_VALUE, 0.5)),
        "is not a token",
    ),
    "tokens with which writing ends": (
        model(numbers("tokenizer.ggml.eot_token_ids", U32, [1, 10])),
        "names the token 10",
    ),
    "a token to begin with": (
        model(u32("decoder_start_token_id", WORDS)),
        "names the token 10",
    ),
    "tokens of an adapter": (
        model(layers("adapters.token_ids_activate", 1, 11)),
        "names the token 11",
    ),
    "tokens nobody may read": (
        model(numbers("llama.some.token_ids", U8, bytes(65_537))),
        "names the token -inf",
    ),
    "a suppressed token": (
        model(numbers("tokenizer.ggml.suppress_tokens", I32, [3, -5])),
        "names the token -5",
    ),
    "too few scores": (
        model(numbers("tokenizer.ggml.scores", F32_VALUE, [0] * 9)),
        "has 9 numbers for a vocabulary of 10",
    ),
    "too many types": (
        model(numbers("tokenizer.ggml.token_type", I32, [1] * 11)),
        "has 11 numbers for a vocabulary of 10",
    ),
    "a score that is none": (
        model(numbers("tokenizer.ggml.scores", F32_VALUE, [math.nan] * WORDS)),
        "is not finite",
    ),
    "an unknown type of token": (
        model(numbers("tokenizer.ggml.token_type", I32, [7] * WORDS)),
        "has unknown types",
    ),
    "types in bytes": (
        model(numbers("tokenizer.ggml.token_type", U8, [1] * WORDS)),
        "is not an array of numbers of its type",
    ),
    "merges that are numbers": (
        model(numbers("tokenizer.ggml.merges", U32, [1, 2])),
        "is not an array of texts",
    ),
    "a vocabulary without end": (model(u32("vocab_size", 2**31)), "llama.vocab_size"),
    "kinds of tokens": (
        model(number("tokenizer.ggml.token_type_count", U32, LARGEST)),
        "token_type_count",
    ),
}


@each_case(("content", "reason"), WRONG.values(), ids=WRONG)
def test_values_that_no_model_has_are_refused(content, reason):
    found = refusal(content)
    assert found is not None
    assert reason in found
    assert found.isprintable()


def eyes(*pairs: bytes) -> bytes:
    """Write the header of a projector."""
    return gguf(pairs=[pair(b"general.architecture", TEXT, text(b"clip")), *pairs])


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("vision.patch_size", 0, "is 0, from 1"),
        ("vision.image_size", 0, "is 0, from 1"),
        ("vision.patch_size", 300, "do not fit in images of"),
        ("vision.block_count", 600, "from 0 to 512"),
        ("vision.attention.head_count", 7, "cannot share"),
        ("vision.attention.layer_norm_epsilon", math.nan, "not finite"),
        ("audio.embedding_length", LARGEST, "embedding_length"),
        ("audio.num_mel_bins", 0, "num_mel_bins"),
        ("audio.projector.stack_factor", 0, "stack_factor"),
        ("audio.projection_dim", 2**31, "projection_dim"),
    ],
)
def test_projectors_are_held_against_what_projectors_have(key, value, reason, tmp_path):
    path = write_tiny_projector(tmp_path / "p.gguf", hears=True)
    found = refusal(with_number(path.read_bytes(), f"clip.{key}", value))
    assert found is not None
    assert reason in found


@pytest.mark.parametrize("deviation", [0.0, math.nan, -1.0])
def test_no_image_is_divided_by_zero(deviation):
    values = [0.5, deviation, 0.5]
    assert (
        refusal(eyes(numbers("clip.vision.image_std", F32_VALUE, values))) is not None
    )


def test_a_window_of_0_is_refused(tmp_path):
    content = write_tiny_model(tmp_path / "m.gguf", window=32).read_bytes()
    assert refusal(content) is None
    found = refusal(with_number(content, "gemma2.attention.sliding_window", 0))
    assert found is not None
    assert "sliding_window' is 0, from 1 to" in found


# --- any number ---------------------------------------------------------------------------

COUNTS = st.one_of(
    st.integers(0, LARGEST), st.sampled_from([0, 1, 2**16, 2**24, 2**31, LARGEST])
)
REALS = st.floats(width=32)


@given(st.sampled_from(sorted(MODEL_RULES)), COUNTS, REALS)
def test_a_number_is_in_its_range_or_refused(key, count, real):
    rule = MODEL_RULES[key]
    is_whole = U32 in rule.kinds
    value = count if is_whole else real
    kind = U32 if is_whole else F32_VALUE
    named = pair(b"general.architecture", TEXT, text(b"llama"))
    content = gguf(pairs=[named, number(f"llama.{key}", kind, value)])
    if not rule.low <= value <= rule.high:
        assert refusal(content) is not None


@given(
    st.sampled_from(sorted(MODEL_RULES)),
    st.sampled_from(sorted(PROJECTOR_RULES)),
    st.sampled_from([U8, U32, I32, F32_VALUE, BOOL, U64]),
    st.lists(st.integers(0, 1), max_size=600),
)
def test_no_type_and_no_length_does_more_than_be_refused(key, of_eyes, kind, values):
    refusal(model(numbers(f"llama.{key}", kind, values)))
    refusal(eyes(numbers(f"clip.vision.{of_eyes}", kind, values)))


@given(st.text(max_size=30), st.binary(max_size=100))
def test_whatever_a_key_is_called_the_refusal_fits_a_line(name, value):
    wild = f"llama.\n\x1b[31m{name}".encode()
    found = refusal(
        model(pair(wild, F32_VALUE, b"\0\0\xc0\x7f"), pair(value, U8, b"x"))
    )
    assert found is not None
    assert found.isascii()
    assert found.isprintable()
