import gguf
import pytest

from inferd.worker.backend import LoadError
from tests.model.tiny import SPECIALS, write_tiny_bert, write_tiny_model
from tests.unit.worker.llama.running import load

pytestmark = pytest.mark.model


@pytest.mark.parametrize("speculation", ["lookup", "draft"])
def test_a_model_without_text_generation_does_not_support_speculation(
    tiny_bert, speculation
):
    with pytest.raises(LoadError, match=f"speculation = '{speculation}'.*does not"):
        load(tiny_bert, speculation=speculation, draft_model=str(tiny_bert))


@pytest.mark.parametrize("speculation", ["lookup", "draft"])
def test_a_recurrent_model_does_not_support_speculation(tiny_mamba, speculation):
    with pytest.raises(
        LoadError, match=f"speculation = '{speculation}'.*a recurrent state"
    ):
        load(tiny_mamba, speculation=speculation, draft_model=str(tiny_mamba))


def refusal(tiny_model, path):
    with pytest.raises(LoadError) as caught:
        load(tiny_model, speculation="draft", draft_model=str(path))
    return str(caught.value)


def test_a_draft_model_with_another_vocabulary_is_refused(tiny_model, tmp_path):
    path = write_tiny_model(tmp_path / "other.gguf")
    swap_two_tokens(path)
    assert "another vocabulary than the model, from token 270" in refusal(
        tiny_model, path
    )


def swap_two_tokens(path):
    """Exchange the texts of two letters, which are as long as each other."""
    field = gguf.GGUFReader(path, "r+").fields["tokenizer.ggml.tokens"]
    one, other = (field.parts[field.data[token]] for token in (270, 271))
    one[:], other[:] = other.copy(), one.copy()


def test_a_draft_model_that_does_not_write_is_refused(tiny_model, tmp_path):
    path = write_tiny_bert(tmp_path / "bert.gguf")
    assert "it does not generate text" in refusal(tiny_model, path)


def test_a_draft_model_that_cannot_take_back_tokens_is_refused(tiny_model, tiny_mamba):
    assert "it is recurrent" in refusal(tiny_model, tiny_mamba)


def test_a_draft_model_with_a_vocabulary_of_another_size_is_refused(
    tiny_model, tmp_path, monkeypatch
):
    monkeypatch.setattr("tests.model.tiny.SPECIALS", (*SPECIALS, "<extra>"))
    path = write_tiny_model(tmp_path / "larger.gguf")
    assert "a vocabulary of 357 tokens of kind 1, the model one of 356" in refusal(
        tiny_model, path
    )


def test_a_draft_model_that_is_not_there_is_refused(tiny_model, tmp_path):
    assert str(tmp_path / "none.gguf") in refusal(tiny_model, tmp_path / "none.gguf")
