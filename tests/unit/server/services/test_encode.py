import json

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import EmbedJob, RerankJob
from inferd.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    InternalError,
    InvalidRequestError,
)
from tests.cases import each_case
from tests.fakes.backend import ABLE, FOR_EVER, Script, ScriptedBackend
from tests.fakes.serving import LocalServer
from tests.fakes.streams import REQUESTS, Frame, generate

EMBED, RERANK = "infer.embed.sock", "infer.rerank.sock"
BOTH = (EMBED, RERANK)


async def answer_of(backend: ScriptedBackend, leaf: str, **fields) -> Frame:
    async with LocalServer(backend).opened() as server, server.connect(leaf) as client:
        [frame] = await client.ask("r", **fields)
        await trio.testing.wait_all_tasks_blocked()
        assert server.is_empty
    assert backend.is_idle
    return frame


# --- embed ------------------------------------------------------------------------------


async def test_vectors_are_one_frame(autojump_clock):
    script = Script(embeddings=b"[[0.6,0.8],[1.0,0.0]]", prompt_tokens=12)
    backend = ScriptedBackend(script)
    assert await answer_of(backend, EMBED, input=["a", "b"]) == {
        "type": "embeddings",
        "id": "r",
        "embeddings": [[0.6, 0.8], [1.0, 0.0]],
        "dimensions": 2,
        "model": "script",
        "usage": {"input_tokens": 12},
        "backend": "scripted",
    }
    assert backend.jobs == [EmbedJob(texts=["a", "b"], dimensions=None, task=None)]


async def test_dimensions_and_task_reach_the_backend(autojump_clock):
    backend = ScriptedBackend()
    frame = await answer_of(backend, EMBED, dimensions=1, task="clustering")
    assert frame["dimensions"] == 1
    assert (backend.jobs[0].dimensions, backend.jobs[0].task) == (1, "clustering")


async def test_more_vectors_than_fit_a_frame_are_refused_before_they_are_made(
    monkeypatch, autojump_clock
):
    monkeypatch.setattr("inferd.resolve.embed.MAX_FRAME_BYTES", 500)
    backend = ScriptedBackend()
    frame = await answer_of(backend, EMBED, input=["a"] * 20)
    assert frame["code"] == "invalid_request"
    assert "fit an answer" in frame["message"]
    assert backend.counts.started == 0


# --- rerank -----------------------------------------------------------------------------


async def test_scores_are_one_frame_the_best_first(autojump_clock):
    backend = ScriptedBackend(Script(scores=(0.5, 3.25, -1.0), prompt_tokens=20))
    assert await answer_of(backend, RERANK, documents=["a", "b", "c"]) == {
        "type": "rerank",
        "id": "r",
        "results": [
            {"index": 1, "score": 3.25},
            {"index": 0, "score": 0.5},
            {"index": 2, "score": -1.0},
        ],
        "model": "script",
        "usage": {"input_tokens": 20},
        "backend": "scripted",
    }
    assert backend.jobs == [RerankJob(query="q", documents=["a", "b", "c"])]


async def test_equal_scores_stay_in_the_order_of_the_request(autojump_clock):
    backend = ScriptedBackend(Script(scores=(1.0, 2.0, 1.0, 2.0, 1.0)))
    frame = await answer_of(backend, RERANK, documents=list("abcde"))
    assert [each["index"] for each in frame["results"]] == [1, 3, 0, 2, 4]


@each_case(("top_n", "n_results"), [(1, 1), (2, 2), (9, 3), (None, 3)])
async def test_the_best_so_many_are_given(top_n, n_results, autojump_clock):
    backend = ScriptedBackend(Script(scores=(1.0, 3.0, 2.0)))
    frame = await answer_of(backend, RERANK, documents=list("abc"), top_n=top_n)
    indices = [each["index"] for each in frame["results"]]
    assert indices == [1, 2, 0][:n_results]


# --- both -------------------------------------------------------------------------------


@each_case("leaf", BOTH)
@each_case(
    ("script", "code", "text"),
    [
        (
            Script(refusal=InvalidRequestError("input[3] has 600 tokens")),
            "invalid_request",
            "invalid request: input[3] has 600 tokens",
        ),
        (Script(refusal=ContextOverflowError(9, 8)), "invalid_request", "2 too many"),
        (
            Script(failure=BackendUnavailableError("gone")),
            "backend_unavailable",
            "gone",
        ),
        (Script(failure=InternalError("no vectors")), "internal", "no vectors"),
        (Script(failure=ZeroDivisionError("secret")), "internal", "bug "),
    ],
)
async def test_a_failure_is_one_error(leaf, script, code, text, autojump_clock):
    with capture_logs():
        frame = await answer_of(ScriptedBackend(script), leaf)
    assert (frame["type"], frame["id"], frame["code"]) == ("error", "r", code)
    assert text in frame["message"]
    assert "secret" not in frame["message"]


@pytest.mark.parametrize(
    ("leaf", "text"),
    [
        (EMBED, "no embed-capable backend available"),
        (RERANK, "no rerank-capable backend available"),
    ],
)
async def test_no_backend_that_can_is_an_error(leaf, text, autojump_clock):
    backend = ScriptedBackend(capabilities=BackendCapabilities())
    frame = await answer_of(backend, leaf)
    assert (frame["code"], frame["message"]) == ("backend_unavailable", text)


@pytest.mark.parametrize("leaf", BOTH)
async def test_an_invalid_request_keeps_the_connection(leaf, autojump_clock):
    bad: Frame = {"input": []} if leaf == EMBED else {"documents": []}
    async with LocalServer(ScriptedBackend()).opened() as server:
        async with server.connect(leaf) as client:
            [refusal] = await client.ask("bad", **bad)
            assert (refusal["id"], refusal["code"]) == ("bad", "invalid_request")
            [frame] = await client.ask("good")
    assert frame["id"] == "good"
    assert frame["type"] != "error"


@pytest.mark.parametrize("leaf", BOTH)
async def test_embed_and_rerank_requests_wait_in_the_common_queue(leaf, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=5))
    async with LocalServer(backend).opened() as server, server.connect() as first:
        await first.send(generate("first"))
        await trio.testing.wait_all_tasks_blocked()
        async with server.connect(leaf) as second:
            await second.send(REQUESTS[leaf]("r"))
            await trio.testing.wait_all_tasks_blocked()
            assert backend.n_running == 1
            [frame] = await second.answer()
    assert frame["type"] != "error"
    assert trio.current_time() == 15


@pytest.mark.parametrize("leaf", BOTH)
async def test_the_queue_has_one_bound_for_all(leaf, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    server = LocalServer(backend, max_queued=0)
    async with (
        server.opened(),
        server.connect() as first,
        server.connect(leaf) as second,
    ):
        await first.send(generate("first"))
        await trio.testing.wait_all_tasks_blocked()
        [frame] = await second.ask("r")
    assert frame["code"] == "queue_full"


@pytest.mark.parametrize("leaf", BOTH)
async def test_a_client_that_leaves_frees_the_permit(leaf, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server:
        client = server.connect(leaf)
        await client.send(REQUESTS[leaf]("r"))
        await trio.testing.wait_all_tasks_blocked()
        assert server.admission.active == 1
        await client.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert server.is_empty
        assert backend.counts.cancelled == 1


async def test_a_frame_that_no_buffer_holds_arrives_whole(autojump_clock):
    vectors = [[0.5] * 100_000] * 4
    backend = ScriptedBackend(Script(embeddings=json.dumps(vectors).encode()))
    frame = await answer_of(backend, EMBED)
    assert frame["embeddings"] == vectors


async def test_a_frame_over_the_cap_is_an_error_instead(monkeypatch, autojump_clock):
    monkeypatch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", 300)
    backend = ScriptedBackend(Script(embeddings=json.dumps([[0.5] * 100]).encode()))
    frame = await answer_of(backend, EMBED)
    assert frame["code"] == "frame_too_large"


@pytest.mark.parametrize(
    ("leaf", "version", "facts"),
    [
        (EMBED, "embed", {"n_inputs": 1, "dimensions": 2}),
        (RERANK, "rerank", {"n_documents": 2, "n_results": 2}),
    ],
)
async def test_the_log_line_has_the_outcome_and_counts(
    leaf, version, facts, autojump_clock
):
    backend = ScriptedBackend(Script(prepare_s=2, token_delay_s=1))
    with capture_logs() as log:
        await answer_of(backend, leaf)
    [line] = [each for each in log if each["event"] == f"{version}_request_done"]
    assert (line["socket"], line["backend"]) == (leaf, "scripted")
    assert (line["stop_reason"], line["input_tokens"]) == ("end", 3)
    assert (line["queued_ms"], line["total_ms"]) == (2000, 3000)
    assert line["wire_version"] == version
    assert facts.items() <= line.items()
    assert "output_tokens" not in line


@pytest.mark.parametrize("leaf", BOTH)
async def test_the_backend_names_its_model(leaf, autojump_clock):
    backend = ScriptedBackend(name="b", capabilities=ABLE)
    frame = await answer_of(backend, leaf)
    assert (frame["backend"], frame["model"]) == ("b", ABLE.model)
