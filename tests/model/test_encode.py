import math
from collections.abc import Iterator

import gguf
import pytest

from inferd.models.convert.vocabulary import SPECIALS as BERT_SPECIALS
from tests.daemon.fixtures import daemons
from tests.daemon.harness import (
    Connection,
    DaemonProcess,
    Frame,
    MakeDaemon,
    eventually,
    llamacpp,
)
from tests.model.reference import PHANTOM_SPACE
from tests.model.tiny import (
    BERT_PIECES,
    N_CTX,
    WIDTH,
    write_tiny_bert,
)

pytestmark = [pytest.mark.model, pytest.mark.slow]

EMBED = "infer.embed.sock"
RERANK = "infer.rerank.sock"
N_VOCAB = len(BERT_SPECIALS) + 2 * len(BERT_PIECES)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    directory = tmp_path_factory.mktemp("encoders")
    return {
        "embed": write_tiny_bert(directory / "embed.gguf"),
        "rerank": write_tiny_bert(directory / "rerank.gguf", pooling="rank"),
    }


@pytest.fixture(scope="module")
def daemon(models) -> Iterator[DaemonProcess]:
    backends = [llamacpp(path, name=name) for name, path in models.items()]
    with daemons() as make:
        yield started(make({"backend": backends}))


def started(daemon: DaemonProcess) -> DaemonProcess:
    """Start a daemon without the v1 socket, which none of its models can serve."""
    daemon.spawn()
    daemon.admin().until("ready")
    return daemon


def ask(daemon: DaemonProcess, socket: str, **request) -> Frame:
    with Connection(daemon.directory / socket) as connection:
        connection.send(request)
        return connection.frame()


def test_only_what_a_model_can_do_has_a_socket(daemon):
    names = {path.name for path in daemon.directory.glob("*.sock")}
    assert names == {"admin.sock", EMBED, RERANK}


def test_texts_become_vectors_of_length_one_in_order(daemon):
    answer = ask(daemon, EMBED, id="e", input=["one", "two", "one"])
    vectors = answer.pop("embeddings")
    assert answer == {
        "type": "embeddings",
        "id": "e",
        "dimensions": WIDTH,
        "model": "tiny-random-bert",
        "usage": {"input_tokens": 3 * (3 + 2)},
        "backend": "embed",
    }
    assert [len(vector) for vector in vectors] == [WIDTH] * 3
    assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1] * 3)
    assert math.dist(vectors[0], vectors[2]) < 1e-3 < math.dist(vectors[0], vectors[1])


def test_fewer_dimensions_may_be_asked_for(daemon):
    answer = ask(daemon, EMBED, input=["one"], dimensions=3)
    assert answer["dimensions"] == 3
    assert math.hypot(*answer["embeddings"][0]) == pytest.approx(1)


def test_the_tokens_of_a_text_have_its_vector(daemon, models):
    reader = gguf.GGUFReader(models["embed"])
    vocabulary = reader.fields["tokenizer.ggml.tokens"].contents()
    bos, end = (
        int(reader.fields[f"tokenizer.ggml.{role}_token_id"].contents())
        for role in ("bos", "seperator")
    )
    pieces = [vocabulary.index(each) for each in (PHANTOM_SPACE + "o", "n", "e")]
    text = ask(daemon, EMBED, input=["one"])
    tokens = ask(daemon, EMBED, tokens=[[bos, *pieces, end]])
    assert tokens == text
    [bare] = ask(daemon, EMBED, tokens=[pieces])["embeddings"]
    assert math.dist(bare, text["embeddings"][0]) > 1e-3


def test_tokens_of_large_lines_have_the_vectors_that_they_have_alone(daemon):
    [alone] = ask(daemon, EMBED, tokens=[[7, 8, 9]])["embeddings"]
    found = ask(daemon, EMBED, tokens=[[7, 8, 9]] * 2048, padding="x" * 32 * 1024)
    assert found["usage"] == {"input_tokens": 3 * 2048}
    assert max(math.dist(alone, vector) for vector in found["embeddings"]) < 1e-2


def test_as_many_texts_as_a_request_may_have_fit_an_answer(daemon):
    texts = [f"text {number % 7}" for number in range(2048)]
    answer = ask(daemon, EMBED, input=texts)
    vectors = answer["embeddings"]
    assert len(vectors) == len(texts)
    distances = [
        math.dist(vector, vectors[number % 7]) for number, vector in enumerate(vectors)
    ]
    assert max(distances) < 1e-2


def test_documents_come_back_by_score(daemon):
    documents = ["an answer", "no", "one more", "an answer"]
    answer = ask(daemon, RERANK, id="r", query="q?", documents=documents)
    results = answer.pop("results")
    n_tokens = sum(len(each.replace(" ", "")) for each in documents) + 4 * (3 + 2)
    assert answer == {
        "type": "rerank",
        "id": "r",
        "model": "tiny-random-bert",
        "usage": {"input_tokens": n_tokens},
        "backend": "rerank",
    }
    scores = {result["index"]: result["score"] for result in results}
    assert set(scores) == set(range(len(documents)))
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert scores[0] == pytest.approx(scores[3], abs=0.01)


def test_only_the_best_may_be_asked_for(daemon):
    whole = ask(daemon, RERANK, query="q?", documents=["a", "b", "c"])
    best = ask(daemon, RERANK, query="q?", documents=["a", "b", "c"], top_n=1)
    assert best["results"] == whole["results"][:1]
    assert best["usage"] == whole["usage"]


@pytest.mark.parametrize(
    ("socket", "request_", "message"),
    [
        (EMBED, {"dimensions": 65, "input": ["x"]}, "dimensions 65 not in [1, 64]"),
        (
            EMBED,
            {"input": ["x", "x" * N_CTX]},
            "input[1] has 514 tokens, the context 512",
        ),
        (
            EMBED,
            {"tokens": [[1], [1, 10**6]]},
            f"tokens[1][1] 1000000 not in [0, {N_VOCAB - 1}], the model's vocabulary",
        ),
        (
            EMBED,
            {"tokens": [[1], [1] * 600]},
            "tokens[1] has 600 tokens, the context 512",
        ),
        (
            RERANK,
            {"query": "q", "documents": ["d", "d" * N_CTX]},
            "documents[1] has 516 tokens with the query, the context 512",
        ),
    ],
)
def test_what_a_model_cannot_take_is_refused(daemon, socket, request_, message):
    refusal = ask(daemon, socket, id="x", **request_)
    assert refusal["type"] == "error"
    assert refusal["id"] == "x"
    assert refusal["code"] == "invalid_request"
    assert refusal["message"] == f"invalid request: {message}"
    assert ask(daemon, EMBED, input=["x"])["type"] == "embeddings"


def is_running(daemon: DaemonProcess, request_id: str) -> bool:
    with Connection(daemon.admin_sock) as admin:
        admin.send({"command": "requests"})
        while (frame := admin.frame())["type"] != "reply":
            pass
    phases = {each["id"]: each["phase"] for each in frame["requests"]}
    return phases.get(request_id) == "running"


LONG_REQUESTS: dict[str, tuple[str, Frame]] = {
    "embed": (EMBED, {"input": ["x" * 500] * 2048}),
    "rerank": (RERANK, {"query": "q" * 250, "documents": ["x" * 250] * 256}),
}


@pytest.mark.parametrize("kind", LONG_REQUESTS)
def test_a_worker_killed_in_the_middle_costs_an_error_and_comes_back(
    make_daemon: MakeDaemon, models, kind
):
    socket, request = LONG_REQUESTS[kind]
    daemon = started(make_daemon({"backend": [llamacpp(models[kind])]}))
    short = {key: each[:1] for key, each in request.items()}
    before = ask(daemon, socket, **short)
    with Connection(daemon.directory / socket) as connection:
        connection.send({**request, "id": "lost"})
        assert eventually(lambda: is_running(daemon, "lost"))
        daemon.kill_worker()
        error = connection.frame()
        assert (error["id"], error["code"]) == ("lost", "backend_unavailable")
        connection.send(short)
        assert connection.frame() == before


def test_a_client_that_leaves_in_the_middle_makes_room(make_daemon: MakeDaemon, models):
    config = {"backend": [llamacpp(models["embed"])], "admission": {"max_active": 1}}
    daemon = started(make_daemon(config))
    socket, request = LONG_REQUESTS["embed"]
    with Connection(daemon.directory / socket) as connection:
        connection.send({**request, "id": "left"})
        assert eventually(lambda: is_running(daemon, "left"))
    assert ask(daemon, socket, input=["next"])["type"] == "embeddings"
    assert not is_running(daemon, "left")
