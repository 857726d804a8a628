import gguf
import numpy as np
import pytest

from inferd.worker.llama.library.binding import llama
from tests.model.tiny import (
    PRINTABLE,
    SPECIALS,
    add_shape,
    vocabulary,
    write_tiny_bert,
    write_tiny_model,
)
from tests.unit.worker.llama.running import load

pytestmark = pytest.mark.model

BEGIN = SPECIALS.index("<s>")
TURN = SPECIALS.index("<|im_start|>")


@pytest.fixture
def model(loaded):
    return loaded._model


@pytest.fixture
def bert(loaded_bert):
    return loaded_bert._model


def test_recurrent_models_are_recognised(model, tiny_mamba):
    assert not model.is_recurrent
    assert load(tiny_mamba)[0]._model.is_recurrent


# --- text and tokens ------------------------------------------------------------------


def test_a_text_becomes_tokens_and_its_tokens_the_text(model):
    begin, *tokens = model.tokenize("hello, wörld 😀")
    assert begin == BEGIN
    assert b"".join(map(model.piece, tokens)).decode() == "hello, wörld 😀"


def test_the_text_that_begins_a_prompt_is_not_begun_twice(model):
    assert model.tokenize("<s>hello") == model.tokenize("hello")
    assert model.tokenize("") == [BEGIN]


def test_markers_become_single_tokens_where_they_may(model):
    assert model.tokenize("<|im_start|>user")[:2] == [BEGIN, TURN]
    plain = model.tokenize("<|im_start|>user", parses_special=False)
    assert len(plain) == 1 + len("<|im_start|>user")


def test_what_looks_like_a_beginning_in_a_clients_text_is_text(model):
    tokens = model.tokenize("<s>", parses_special=False)
    assert tokens == [
        BEGIN,
        *model.tokenize("<s", parses_special=False)[1:],
        tokens[-1],
    ]
    assert len(tokens) == 1 + len("<s>")


def test_more_tokens_than_there_was_room_for_are_asked_for_again(bert, monkeypatch):
    rooms = []

    def tokenize(vocab, data, n_bytes, tokens, room, *options):
        rooms.append(room)
        return (
            plain(vocab, data, n_bytes, tokens, room, *options) if room > 99 else -100
        )

    plain = llama.llama_tokenize
    expected = bert.tokenize("hello")
    monkeypatch.setattr(llama, "llama_tokenize", tokenize)
    assert bert.tokenize("hello") == expected
    assert rooms == [7, 100]


def test_control_tokens_have_no_bytes_and_others_their_own(model):
    assert [model.piece(token) for token in range(len(SPECIALS))] == [b""] * 5
    pieces = [model.piece(token) for token in range(5, model.n_vocab)]
    assert pieces[:256] == [bytes([byte]) for byte in range(256)]
    assert pieces[256:] == [bytes([code]) for code in PRINTABLE]
    assert model.piece(model.n_vocab - 1) == b"~"  # the second time too


def test_control_tokens_that_are_kept_have_their_text_and_are_told(tmp_path):
    model = load(write_tiny_model(tmp_path / "kept.gguf"))[0]._model
    assert model.marker_texts == frozenset()
    model.render_markers(["<|im_start|>a", "b", "</s>"])
    assert model.marker_texts == {b"<|im_start|>", b"</s>"}
    assert model.piece(TURN) == b"<|im_start|>"
    assert model.piece(BEGIN) == b""


def test_every_token_that_ends_a_turn_is_known(model):
    assert SPECIALS.index("<|im_end|>") in model.end_tokens
    assert set(model.end_tokens) < set(range(len(SPECIALS)))
    ends = [model.is_end(token) for token in range(model.n_vocab)]
    assert [token for token, is_end in enumerate(ends) if is_end] == [*model.end_tokens]


def test_special_tokens_are_known_by_the_names_that_templates_use(model):
    assert model.special_tokens() == {"bos_token": "<s>", "eos_token": "<|im_end|>"}


# --- the header -----------------------------------------------------------------------


def test_metadata_can_be_looked_up_as_text(model):
    assert model.metadata("general.name") == "tiny-random"
    assert model.metadata("llama.embedding_length") == "64"
    assert model.metadata("no.such.key") == ""


def test_numbers_are_recommended_and_nothing_else(tmp_path):
    recommended: dict[str, float | str] = {
        "temp": 0.5,
        "top_p": float("nan"),
        "min_p": float("-inf"),
        "x": "y",
    }
    path = write_tiny_model(tmp_path / "tiny.gguf", recommended=recommended)
    model = load(path)[0]._model
    found = {each: model.recommended(each) for each in (*recommended, "top_k")}
    assert found == {"temp": 0.5, **dict.fromkeys(["top_p", "min_p", "x", "top_k"])}


@pytest.mark.parametrize(
    ("pooling", "use"), [("mean", "embed"), ("cls", "embed"), ("rank", "rerank")]
)
def test_pooling_tells_what_an_encoder_is_for(tmp_path, pooling, use):
    path = write_tiny_bert(tmp_path / "bert.gguf", pooling=pooling)
    assert load(path)[0]._model.use == use


def test_a_causal_model_without_pooling_writes_and_one_with_embeds(
    tmp_path, monkeypatch, model
):
    assert (model.use, model.pooling) == ("generate", 0)
    monkeypatch.setattr("tests.model.tiny.add_shape", with_pooling)
    path = write_tiny_model(tmp_path / "embed.gguf")
    assert load(path)[0]._model.use == "embed"
    assert load(path, serves="generate")[0]._model.use == "generate"


def with_pooling(writer, kind):
    add_shape(writer, kind)
    writer.add_pooling_type(gguf.PoolingType.LAST)


# --- pairs ----------------------------------------------------------------------------


def test_a_pair_is_two_texts_each_with_its_end(bert):
    begin, *query, end = bert.tokenize("one")
    document = bert.tokenize("two words")[1:-1]
    expected = [begin, *query, end, *document, end]
    assert bert.tokenize_pair("one", "two words") == expected


def test_markers_in_a_pair_are_text(bert):
    assert bert.tokenize_pair("[SEP]", "[CLS]").count(3) == 2
    assert bert.tokenize_pair("[SEP]", "[CLS]").count(2) == 1


def test_a_file_with_two_segments_has_the_document_in_the_second(tmp_path, bert):
    path = write_tiny_bert(
        tmp_path / "two.gguf", pooling="rank", has_second_segment=True
    )
    model = load(path)[0]._model
    assert model.n_vocab == 2 * bert.n_vocab
    flat = bert.tokenize_pair("one", "two words")
    n_first = flat.index(3) + 1
    assert model.tokenize_pair("one", "two words") == [
        *flat[:n_first],
        *(token + bert.n_vocab for token in flat[n_first:]),
    ]


def test_control_tokens_have_a_text(model):
    [token] = model.tokenize(SPECIALS[0])[-1:]
    assert (model.text(token), model.piece(token)) == (SPECIALS[0].encode(), b"")


# --- log probabilities ----------------------------------------------------------------


def test_a_log_probability_names_its_token_and_the_likeliest(model):
    known = np.linspace(-9, -1, model.n_vocab, dtype=np.float32)
    letter = model.tokenize("x")[-1]
    found = model.logprob(letter, known, 3)
    assert (found.token, found.id, found.bytes) == ("x", letter, [ord("x")])
    assert found.logprob == pytest.approx(known[letter])
    assert [each.token for each in found.top_logprobs] == ["~", "}", "|"]
    assert [each.logprob for each in found.top_logprobs] == known[:-4:-1].tolist()


def test_half_a_character_is_reported_in_bytes(model):
    half = len(SPECIALS) + 0xC3
    found = model.logprob(half, np.zeros(model.n_vocab, np.float32), 1)
    assert (found.token, found.bytes) == ("\N{REPLACEMENT CHARACTER}", [0xC3])


def test_as_many_alternatives_as_there_are_tokens_may_be_asked_for(model):
    known = np.random.default_rng(0).normal(size=model.n_vocab).astype(np.float32)
    found = model.logprob(0, known, model.n_vocab)
    assert len({each.id for each in found.top_logprobs}) == len(vocabulary())
