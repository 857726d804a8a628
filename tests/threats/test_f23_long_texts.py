import pytest

from inferd.backend.job import RerankJob
from inferd.limits.worker import TOKENIZE_AT_ONCE_BYTES
from inferd.worker.backend import PromptOverflowError, RefusedError
from tests.model.tiny import write_tiny_bert, write_tiny_model
from tests.unit.worker.llama.running import embed_job, job, load

pytestmark = pytest.mark.model

N_CTX = 512
LONG = "\n" * 2**22
"""It takes a tokeniser of SentencePiece's kind a quarter of an hour."""
WORDS = "hello " * 2**20


def loaded(path, monkeypatch):
    """Load a model that is never asked to tokenise a long text."""
    backend, _ = load(path)
    cut = backend._model.tokenize_raw

    def checked(text, **options):
        assert len(text) <= TOKENIZE_AT_ONCE_BYTES, "that takes long"
        return cut(text, **options)

    monkeypatch.setattr(backend._model, "tokenize_raw", checked)
    return backend


@pytest.mark.parametrize("limits", [{}, {"prefill_only": True}, {"max_tokens": 0}])
def test_a_long_prompt_is_refused_before_it_is_tokenised(tmp_path, monkeypatch, limits):
    backend = loaded(write_tiny_model(tmp_path / "tiny.gguf"), monkeypatch)
    with pytest.raises(PromptOverflowError) as caught:
        backend.prepare(job(LONG, **limits))
    assert caught.value.at_least
    assert 1.9 * N_CTX < caught.value.prompt_tokens < len(LONG)


def test_a_long_text_is_refused_before_it_is_tokenised(tmp_path, monkeypatch):
    backend = loaded(write_tiny_bert(tmp_path / "bert.gguf"), monkeypatch)
    with pytest.raises(RefusedError, match=r"^input\[1\] has at least \d+ tokens, "):
        backend.prepare(embed_job("hello", WORDS, "hello"))


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        (RerankJob(query=WORDS, documents=["hello"]), 0),
        (RerankJob(query="hello", documents=["hello", WORDS]), 1),
    ],
)
def test_a_long_document_or_query_is_refused_before_it_is_tokenised(
    tmp_path, monkeypatch, asked, place
):
    path = write_tiny_bert(tmp_path / "rank.gguf", pooling="rank")
    expected = rf"^documents\[{place}\] has at least \d+ tokens with the query, "
    with pytest.raises(RefusedError, match=expected):
        loaded(path, monkeypatch).prepare(asked)


def test_no_text_is_tokenised_after_one_that_does_not_fit(tmp_path, monkeypatch):
    backend, _ = load(write_tiny_bert(tmp_path / "bert.gguf"))
    read = []
    tokenize = backend._model.tokenize

    def noted(text, **options):
        read.append(text)
        return tokenize(text, **options)

    monkeypatch.setattr(backend._model, "tokenize", noted)
    with pytest.raises(RefusedError, match=r"^input\[1\] has 602 tokens"):
        backend.prepare(embed_job("hello", "x" * 600, *["hello"] * 100))
    assert len(read) == 2
