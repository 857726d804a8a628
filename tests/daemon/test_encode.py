import math

import pytest

from tests.daemon.harness import DaemonProcess, generate

pytestmark = pytest.mark.slow

EMBED, RERANK = "infer.embed.sock", "infer.rerank.sock"


def test_texts_come_back_as_vectors(shared_daemon: DaemonProcess):
    with shared_daemon.connect(EMBED) as client:
        [frame] = client.ask({"id": "a", "input": ["x", "y", "x"]})
        [short] = client.ask({"id": "b", "input": ["x"], "dimensions": 3})
    x, y, again = frame.pop("embeddings")
    assert x == again != y
    assert [len(x), len(y), math.hypot(*x)] == [8, 8, pytest.approx(1)]
    assert frame == {
        "type": "embeddings",
        "id": "a",
        "dimensions": 8,
        "model": "mock",
        "usage": {"input_tokens": 0},
        "backend": "mock",
    }
    assert (short["id"], short["dimensions"], len(short["embeddings"][0])) == (
        "b",
        3,
        3,
    )


def test_documents_come_back_in_the_order_of_their_scores(shared_daemon: DaemonProcess):
    documents = ["nothing", "red fox", "a red fox"]
    with shared_daemon.connect(RERANK) as client:
        request = {"id": "a", "query": "red fox", "documents": documents, "top_n": 2}
        assert client.ask(request) == [
            {
                "type": "rerank",
                "id": "a",
                "results": [{"index": 1, "score": 1}, {"index": 2, "score": 1}],
                "model": "mock",
                "usage": {"input_tokens": 0},
                "backend": "mock",
            }
        ]


@pytest.mark.parametrize(
    ("leaf", "request_of", "message"),
    [
        (EMBED, {"input": []}, "input must not be empty"),
        (EMBED, {"input": ["a"], "dimensions": 9}, "dimensions 9 not in [1, 8]"),
        (RERANK, {"query": "", "documents": ["a"]}, "query must not be empty"),
    ],
)
def test_what_means_nothing_is_refused_and_the_connection_kept(
    shared_daemon: DaemonProcess, leaf, request_of, message
):
    with shared_daemon.connect(leaf) as client:
        for _ in range(2):
            assert client.ask({"id": "a", **request_of}) == [
                {
                    "type": "error",
                    "id": "a",
                    "code": "invalid_request",
                    "message": f"invalid request: {message}",
                }
            ]


@pytest.mark.parametrize("leaf", [EMBED, RERANK])
def test_another_sockets_request_ends_the_connection(
    shared_daemon: DaemonProcess, leaf
):
    with shared_daemon.connect(leaf) as client:
        client.send(generate(id="a"))
        refusal = client.frame()
        assert (refusal["id"], refusal["code"]) == ("", "invalid_request")
        client.read_eof()
