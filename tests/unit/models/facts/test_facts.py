import io

from inferd.models.facts.gguf_facts import (
    KEPT_TEXTS,
    chat_template,
    gguf_facts,
    use_of,
)
from inferd.models.facts.model import ModelFacts
from inferd.models.facts.whisper_facts import whisper_facts
from inferd.models.gguf_header.header import GgufContents, read_contents
from tests.cases import each_case
from tests.fakes.gguf_bytes import (
    BOOL,
    F32,
    F32_VALUE,
    Q8_0,
    TEXT,
    U32,
    gguf,
    number,
    pair,
    tensor,
    text,
)
from tests.unit.worker.whisper.models import SMALL

ROW = 64 * 4
"""Bytes of 64 numbers."""


def words(key: str, value: str) -> bytes:
    return pair(key.encode(), TEXT, text(value.encode()))


def contents(
    *pairs: bytes, shapes: dict[bytes, list[int]] | None = None
) -> GgufContents:
    tensors, at = [], 0
    for name, shape in (shapes or {}).items():
        tensors.append(tensor(name, shape, offset=at))
        n_bytes = 4
        for each in shape:
            n_bytes *= each
        at += -(-n_bytes // 32) * 32
    content = gguf(
        pairs=[words("general.architecture", "llama"), *pairs],
        tensors=tensors,
        data=bytes(at),
    )
    return read_contents(io.BytesIO(content), len(content), KEPT_TEXTS)


def facts(*pairs: bytes, shapes: dict[bytes, list[int]] | None = None) -> ModelFacts:
    return gguf_facts([contents(*pairs, shapes=shapes)])


def test_the_facts_are_those_of_the_header():
    found = facts(
        words("general.name", "Tiny"),
        words("general.license", "mit"),
        number("general.file_type", U32, 0),
        number("llama.context_length", U32, 512),
        number("llama.block_count", U32, 2),
        number("llama.embedding_length", U32, 64),
        number("llama.vocab_size", U32, 7),
        shapes={b"a": [64, 2], b"b": [32]},
    )
    assert found == ModelFacts(
        format="GGUF",
        kind="llamacpp",
        use="generate",
        name="Tiny",
        architecture="llama",
        n_parameters=160,
        n_bytes=640,
        quantisation="F32",
        tensor_types={"F32": 640},
        n_ctx=512,
        n_layers=2,
        n_embd=64,
        n_vocab=7,
        license="mit",
        token_bytes=640,
    )


def test_all_parts_of_a_split_model_count():
    one = contents(shapes={b"a": [64]})
    other = contents(shapes={b"b": [64, 3]})
    found = gguf_facts([one, other])
    assert (found.n_parts, found.n_parameters, found.n_bytes) == (2, 256, 4 * ROW)


def test_embeddings_that_are_no_output_are_not_read_for_a_token():
    tied = {b"token_embd.weight": [64, 5], b"blk.0.attn_q.weight": [64]}
    assert facts(shapes=tied).token_bytes == 6 * ROW
    assert facts(shapes={**tied, b"output.weight": [64, 5]}).token_bytes == 6 * ROW


def test_of_experts_those_in_use_are_read_for_a_token():
    shapes = {b"blk.0.ffn_up_exps.weight": [64, 8], b"blk.0.attn_q.weight": [64]}
    found = facts(
        number("llama.expert_count", U32, 8),
        number("llama.expert_used_count", U32, 2),
        shapes=shapes,
    )
    assert (found.n_experts, found.n_experts_used) == (8, 2)
    assert found.token_bytes == 3 * ROW
    assert facts(shapes=shapes).token_bytes == 9 * ROW


@each_case(
    ("pooling", "is_causal", "use"),
    [
        (0, True, "generate"),
        (0, False, "embed"),
        (1, True, "embed"),
        (4, True, "rerank"),
    ],
)
def test_a_model_is_for_what_its_pooling_and_attention_give(pooling, is_causal, use):
    assert use_of(pooling, is_causal=is_causal) == use
    found = facts(
        number("llama.pooling_type", U32, pooling),
        number("llama.attention.causal", BOOL, is_causal),
    )
    assert found.use == use


def test_a_projector_is_no_model_by_itself():
    content = gguf(pairs=[words("general.architecture", "clip")])
    found = gguf_facts([read_contents(io.BytesIO(content), len(content))])
    assert (found.use, found.token_bytes) == ("project", 0)


def test_long_texts_are_no_names_and_templates_are_kept():
    template = "{{ messages }}" * 100
    found = contents(
        words("general.name", "n" * 257), words("tokenizer.chat_template", template)
    )
    assert chat_template(found) == template
    assert gguf_facts([found]).name == ""
    assert chat_template(contents()) == ""


def test_bytes_that_are_not_utf_8_do_no_harm():
    found = facts(pair(b"general.name", TEXT, text(b"\xff\x1b[31m")))
    assert found.name == "\ufffd\x1b[31m"


def test_a_number_that_is_not_finite_is_none():
    """Header rules let it pass under the prefix of recommended sampling options."""
    content = gguf(
        pairs=[
            words("general.architecture", "general.sampling"),
            number("general.sampling.attention.causal", F32_VALUE, float("nan")),
        ]
    )
    found = gguf_facts([read_contents(io.BytesIO(content), len(content))])
    assert found.use == "generate"


def test_types_of_tensors_are_listed_by_their_bytes():
    content = gguf(
        tensors=[tensor(b"a", [32], Q8_0), tensor(b"b", [64], F32, 64)],
        data=bytes(64 + ROW),
    )
    found = gguf_facts([read_contents(io.BytesIO(content), len(content))])
    assert list(found.tensor_types.items()) == [("F32", ROW), ("Q8_0", 34)]


def test_a_speech_model_is_named_by_its_size():
    assert whisper_facts(SMALL, 1000).name == ""
    english = SMALL._replace(n_audio_layer=6, n_vocab=51_864)
    assert whisper_facts(english, 1000).name == "whisper-base.en"
    many = SMALL._replace(n_audio_layer=32, n_text_layer=4, n_vocab=51_866)
    found = whisper_facts(many, 1000)
    assert (found.name, found.n_languages) == ("whisper-large-v3-turbo", 100)
    assert (found.use, found.kind, found.n_bytes) == ("transcribe", "whispercpp", 1000)
