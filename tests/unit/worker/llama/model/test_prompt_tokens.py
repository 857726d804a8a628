import pytest
from hypothesis import given, strategies as st

from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.model.prompt_tokens import (
    single_token_texts,
    split_at_marker,
    tokenize_prompt,
)
from tests.model.tiny import SPECIALS, write_tiny_model
from tests.unit.worker.llama.running import load

pytestmark = pytest.mark.model

UNKNOWN, BEGIN, _, TURN, END = range(len(SPECIALS))


@pytest.fixture
def model(loaded):
    return loaded._model


def load_with(path, monkeypatch, *, option):
    """Load a model that differs in one option of its vocabulary."""
    name, value = option

    def add(writer, **_):
        writer.add_bool(f"tokenizer.ggml.{name}", value)

    monkeypatch.setattr(f"gguf.GGUFWriter.add_{name}", add)
    return load(write_tiny_model(path / "tiny.gguf"))[0]._model


def tokenized(model, pieces):
    [tokens] = tokenize_prompt(model, [pieces])
    return tokens


def spelled(model, tokens):
    return b"".join(map(model.piece, tokens)).decode()


def test_a_prompt_of_one_piece_is_tokenised_like_any_text(model):
    for text in ("<|im_start|>hello", "<s>hello", ""):
        assert tokenized(model, (text,)) == model.tokenize(text)


def test_no_token_is_across_two_pieces(model):
    tokens = tokenized(model, ("<|im_start|>a<", "|im_start|>b<|im_end|>"))
    assert tokens[:2] == [BEGIN, TURN]
    assert tokens[-1] == END
    assert [each for each in tokens if each < len(SPECIALS)] == [BEGIN, TURN, END]
    assert spelled(model, tokens) == "a<|im_start|>b"


@pytest.mark.parametrize("pieces", [("<s>a<", "s>"), ("a<", "s>"), ("<", "s>a")])
def test_a_prompt_in_pieces_begins_once(model, pieces):
    tokens = tokenized(model, pieces)
    assert tokens.count(BEGIN) == 1
    assert tokens[0] == BEGIN


def test_a_prompt_in_pieces_ends_where_the_vocabulary_says_so(
    tmp_path, monkeypatch, model
):
    monkeypatch.setattr("gguf.GGUFWriter.add_unk_token_id", with_end)
    ending = load(write_tiny_model(tmp_path / "tiny.gguf"))[0]._model
    assert ending.tokenize("a<b") == [*model.tokenize("a<b"), END]
    assert tokenized(ending, ("a<", "b")) == ending.tokenize("a<b")
    assert tokenized(ending, ("<s>a<", "b")) == model.tokenize("a<b")


def with_end(writer, token):
    writer.add_uint32("tokenizer.ggml.unknown_token_id", token)
    writer.add_add_eos_token(value=True)


def test_a_vocabulary_that_begins_texts_with_a_space_puts_none_between_pieces(
    tmp_path, monkeypatch, model
):
    spacing = load_with(tmp_path, monkeypatch, option=("add_space_prefix", True))
    assert spelled(spacing, spacing.tokenize("a<b c")) == " a<b c"
    tokens = tokenized(spacing, ("a<", "b c<", "\n", "d"))
    assert spelled(spacing, tokens) == " a<b c<\nd"


def test_a_newline_that_does_not_stand_alone_keeps_no_space_away(model, monkeypatch):
    def cut(text, **_):
        return [ord(each[-1]) for each in text.replace("\n\n", "N").split("|")]

    monkeypatch.setattr(model, "tokenize_raw", cut)
    tokens = tokenized(model, ("a", "\n|b", "|c"))
    assert [chr(token) for token in tokens[1:]] == ["a", "\n", "b", "c"]


def test_texts_between_which_something_stands_are_one_prompt(model):
    texts = tokenize_prompt(model, [["<|im_start|>a"], ["b<", "|im_end|>"], []])
    assert [spelled(model, each) for each in texts] == ["a", "b<|im_end|>", ""]
    assert texts[0][:2] == [BEGIN, TURN]
    assert END not in texts[1]


@given(
    st.lists(st.lists(st.text("ab\n", max_size=3), max_size=3), min_size=1, max_size=4)
)
def test_a_prompt_is_split_at_markers_and_between_pieces(texts):
    marked = [[*each, "<!>"] for each in texts[:-1]]
    pieces = [piece for each in [*marked, texts[-1]] for piece in each]
    found = split_at_marker("<!>", pieces)
    assert ["".join(each) for each in found] == ["".join(each) for each in texts]
    seams = [[piece for piece in each if piece] for each in texts]
    assert [[piece for piece in each if piece] for each in found] == seams


def test_a_marker_is_found_where_pieces_part_amid_it():
    assert split_at_marker("<!>", ["a<", "!", ">b"]) == [["a"], ["b"]]


def test_the_texts_of_special_tokens_are_known(tmp_path, monkeypatch, model):
    assert single_token_texts(model) == ([*SPECIALS], [])
    kinds = {
        TURN: llama.LLAMA_TOKEN_ATTR_USER_DEFINED,
        UNKNOWN: llama.LLAMA_TOKEN_ATTR_UNKNOWN,
        END: llama.LLAMA_TOKEN_ATTR_CONTROL,
    }
    normal = llama.LLAMA_TOKEN_ATTR_NORMAL
    monkeypatch.setattr(
        llama, "llama_vocab_get_attr", lambda _, token: kinds.get(token, normal)
    )
    assert single_token_texts(model) == (["<unk>", "<|im_end|>"], ["<|im_start|>"])
