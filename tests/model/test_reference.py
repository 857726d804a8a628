import ctypes
from pathlib import Path

import numpy as np
import pytest

from inferd.worker.llama.library.binding import llama, load_library
from tests.model.embedded import embedded_path
from tests.model.reference import Reference
from tests.model.tiny import write_tiny_bert

pytestmark = [pytest.mark.model, pytest.mark.slow]

N_CTX = 512
OFFSET_KEY = b"inferd.second_segment_offset"

LONG = " ".join(
    f"In chapter {number} the travellers cross another river, and the map is wrong."
    for number in range(1, 16)
)
TEXTS = [
    "",
    "a",
    "The quick brown fox jumps over the lazy dog.",
    "UPPER CASE, lower case; MiXeD cAsE!",
    "Ünïcödé naïve café, Ärger über Straße",
    "日本語のテキスト 和 中文",
    "Привет, мир! Ёлка и йод.",
    "Οδυσσέας ταξιδεύει",
    "مرحبا بالعالم",
    "emoji 😀 test 🚀 done",
    "C++ & C# > Java; x = y**2 - 3.14% of $5 ~ ^ ` |",
    "don't stop-believing: user@example.org, #tag",
    " \t\n spaces\u00a0of \u2003 all\r\nkinds ",
    "zero\u200bwidth, soft\u00adhyphen, control\u0007",
    "[CLS] is no marker here, nor is [SEP]",
    "antidisestablishmentarianism pneumonoultramicroscopic",
    LONG,
]
QUERIES = {
    "how do I bake bread without yeast?": [
        "Yeast is a fungus that turns sugar into carbon dioxide.",
        "Soda bread needs no yeast: mix flour, buttermilk, salt and baking soda.",
        "The bakery on the corner closes at six.",
        "To make bread rise without yeast, use baking powder or a sourdough starter.",
        "Knead the dough for ten minutes, then let the yeast work for an hour.",
    ],
    "python list comprehension syntax": [
        "Pythons are large snakes that live in Africa and Asia.",
        "Lists in Python are ordered and can be changed.",
        "A list comprehension has the form [expression for item in iterable].",
        "A dictionary maps keys to values.",
    ],
    "Why is the sky blue?": [
        "The sky was blue on the day we left.",
        "Rayleigh scattering varies with the inverse fourth power of the wavelength.",
        "Blue is a colour between violet and cyan.",
        "Air scatters short waves of sunlight more than long ones, so it looks blue.",
    ],
    "Wie hoch ist der Eiffelturm?": [
        "Der Turm steht in Paris.",
        "The Eiffel Tower is 330 metres tall.",
        "Der Eiffelturm ist 330 Meter hoch.",
    ],
    "how long does it take to get to mars": [
        "Mars bars contain caramel and nougat.",
        "A trip to Mars takes about seven months with today's rockets.",
        "It takes eight minutes for light from the Sun to reach the Earth.",
        LONG,
        "Mars is the fourth planet from the Sun.",
    ],
}


class Encoder:
    """llama.cpp itself, one sequence at a time; pooling is what the file says."""

    def __init__(self, path: Path) -> None:
        load_library()
        params = llama.llama_model_default_params()
        self.model = llama.llama_model_load_from_file(str(path).encode(), params)
        self.vocab = llama.llama_model_get_vocab(self.model)
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = N_CTX
        params.n_threads = params.n_threads_batch = 1
        params.embeddings = True
        self.context = llama.llama_init_from_model(self.model, params)

    def close(self):
        llama.llama_free(self.context)
        llama.llama_model_free(self.model)

    def tokenize(self, text, *, add_special=False):
        data = text.encode()
        tokens = (llama.llama_token * N_CTX)()
        n_tokens = llama.llama_tokenize(
            self.vocab, data, len(data), tokens, N_CTX, add_special, False
        )
        assert n_tokens >= 0
        return list(tokens[:n_tokens])

    def pooled(self, tokens, n_values):
        n_tokens = len(tokens)
        data = (llama.llama_token * n_tokens)(*tokens)
        batch = llama.llama_batch_get_one(data, n_tokens)
        batch.logits = (ctypes.c_int8 * n_tokens)(*[1] * n_tokens)
        assert llama.llama_encode(self.context, batch) == 0
        pointer = llama.llama_get_embeddings_seq(self.context, 0)
        return np.ctypeslib.as_array(pointer, (n_values,)).copy()

    def embed(self, text):
        width = llama.llama_model_n_embd(self.model)
        vector = self.pooled(self.tokenize(text, add_special=True), width)
        return vector / np.linalg.norm(vector)

    def score(self, query, document, *, offset=None):
        end = llama.llama_vocab_sep(self.vocab)
        first = [llama.llama_vocab_bos(self.vocab), *self.tokenize(query), end]
        second = [*self.tokenize(document), end]
        shift = self.second_segment_offset() if offset is None else offset
        return self.pooled(first + [token + shift for token in second], 1)[0]

    def second_segment_offset(self):
        room = ctypes.create_string_buffer(16)
        found = llama.llama_model_meta_val_str(self.model, OFFSET_KEY, room, 16)
        return int(room.value) if found >= 0 else 0


@pytest.fixture(scope="module")
def pair():
    """Load a file twice: with llama.cpp and with the reference."""
    loaded = {}

    def load(path):
        if path not in loaded:
            loaded[path] = Encoder(path), Reference(path)
        return loaded[path]

    yield load
    for encoder, _ in loaded.values():
        encoder.close()


def embedded(name):
    return embedded_path(name)


def order(scores):
    return np.argsort(scores)[::-1].tolist()


# --- the embedded models ------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_an_embedding_is_that_of_the_reference(pair, text):
    encoder, reference = pair(embedded("embed"))
    assert encoder.tokenize(text) == reference.tokenize(text)
    assert encoder.embed(text) @ reference.embed(text) >= 0.999


@pytest.mark.long
@pytest.mark.parametrize("query", QUERIES)
def test_documents_are_in_the_order_of_the_reference(pair, query):
    encoder, reference = pair(embedded("rerank"))
    expected = [reference.score(query, each) for each in QUERIES[query]]
    scores = [encoder.score(query, each) for each in QUERIES[query]]
    assert order(scores) == order(expected)
    assert scores == pytest.approx(expected, abs=0.2)


def test_without_the_offset_a_document_is_read_as_more_of_the_query(pair):
    encoder, reference = pair(embedded("rerank"))
    query = "python list comprehension syntax"
    document = QUERIES[query][2]
    flat = encoder.score(query, document, offset=0)
    misread = reference.score(query, document, second_segment=0)
    assert flat == pytest.approx(misread, abs=0.5)
    assert reference.score(query, document) > flat + 4


def test_two_texts_of_one_meaning_are_closer_than_two_of_one_wording(pair):
    encoder, _ = pair(embedded("embed"))
    cat, kitten, cats = (
        encoder.embed(text)
        for text in (
            "The cat sits on the mat.",
            "A kitten is resting on a rug.",
            "The CAT scanner is in the basement.",
        )
    )
    assert cat @ kitten > cat @ cats


# --- tiny models --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_tiny_model_embeds_as_the_reference_does(pair, tmp_path, pooling, kind):
    path = write_tiny_bert(tmp_path / "tiny.gguf", pooling=pooling, kind=kind)
    encoder, reference = pair(path)
    for text in ("hello, world", "Hello there!", ""):
        assert encoder.embed(text) @ reference.embed(text) >= 0.999


@pytest.mark.parametrize("has_second_segment", [False, True])
def test_a_tiny_model_scores_as_the_reference_does(pair, tmp_path, has_second_segment):
    path = write_tiny_bert(
        tmp_path / "tiny.gguf", pooling="rank", has_second_segment=has_second_segment
    )
    encoder, reference = pair(path)
    assert bool(encoder.second_segment_offset()) == has_second_segment
    documents = ["an answer", "another", "", "no!"]
    kind = int(has_second_segment)
    expected = [reference.score("q?", each, second_segment=kind) for each in documents]
    scores = [encoder.score("q?", each) for each in documents]
    assert scores == pytest.approx(expected, abs=0.02)
    assert len({round(score, 2) for score in scores}) == len(documents)
