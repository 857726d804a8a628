"""The kind ``inferd`` over a daemon's sockets, whose form ``protocol/README.md`` defines.

The answers of the golden conversations were recorded from this project's daemon: that of
``overflow`` with its smallest model, the others with a scripted backend, which is held to no
schema, so that the request of ``structure`` was sent without one. Their counts of tokens are
replaced by those of all kinds.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from inferd.backend.job import (
    EmbedJob,
    Job,
    Media,
    RerankJob,
    Structure,
    ToolChoice,
    TranscribeJob,
    Turn,
)
from inferd.config.kinds.inferd import INFERD, InferdSettings
from inferd.config.kinds.openai import OPENAI, OpenAiSettings
from inferd.config.settings import ConfigError
from inferd.ipc.worker import Embedded, Scored, Transcribed, TranscriptEnded
from inferd.resolve.embed import resolve_embed
from inferd.resolve.rerank import resolve_rerank
from inferd.resolve.v2 import resolve_v2
from inferd.wire.codec import decode_blocks, decode_embed, decode_rerank
from inferd.wire.responses import Logprob
from inferd.worker.backend import RefusedError
from inferd.worker.remote.api import TokenPiece
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.inferd import request as line_of
from inferd.worker.remote.inferd.api import api_of
from inferd.worker.remote.job_translation import write_request
from tests.cases import each_case
from tests.unit.worker.remote.conversations import ADD, CONVERSATIONS, replay
from tests.unit.worker.remote.openai.jobs import job, sampling
from tests.unit.worker.remote.streams import AGENT

EXCHANGES: Final = Path(__file__).parent / "exchanges"
ABLE: Final = {"tools": True, "thinking": True, "structure": True, "vision": True}
PIXELS: Final = bytes(range(12))
IMAGE: Final = Media(kind="image", id="i", n_bytes=12, width=2, height=2)
SOUND: Final = Media(kind="audio", id="s", n_bytes=64_000, sample_rate=16_000)
SAMPLES: Final = bytes(64_000)


def settings(**fields: Any) -> InferdSettings:
    given = {"name": "r", "base_url": "sockets:/run/inferd", "model": "mock"}
    return InferdSettings(**{**given, **ABLE, **fields})


FAR: Final = settings()
SOCKETS: Final = api_of(FAR)


def line(**frame: object) -> bytes:
    return json.dumps({"id": "r", **frame}).encode()


def test_the_golden_conversations_come_to_the_same_as_with_every_kind():
    for name, conversation in CONVERSATIONS.items():
        assert replay(SOCKETS, FAR, name, EXCHANGES) == conversation.outcome, name


def test_the_daemon_there_resolves_a_request_to_the_job_that_was_asked_for():
    asked = job(
        turns=AGENT.turns,
        tools=(ADD,),
        tool_choice=ToolChoice("named", "add"),
        marker="#",
        media=(IMAGE,),
        thinks=True,
        min_tokens=2,
        stop_token_ids=(3,),
        n_alternatives=4,
        cache="discard",
        sampling=sampling(
            temperature=0.5, top_k=3, min_p=0.1, logit_bias={5: 1.0}, seed_given=True
        ),
        via=("a", "b"),
    )
    sent = line_of.write_chat(FAR, asked, [PIXELS]).body
    plan = resolve_v2(decode_blocks(sent), seed=0, marker="#")
    # the arguments of calls are the same objects, and not the same texts
    turns = [
        msgspec.structs.replace(
            turn,
            calls=tuple(
                msgspec.structs.replace(
                    each, arguments=json.dumps(json.loads(each.arguments or "{}"))
                )
                for each in turn.calls
            ),
            name="",
        )
        for turn in (*plan.job.turns,)
    ]
    assert [(t.role, t.text, t.call_id) for t in turns] == [
        (t.role, t.text, t.call_id) for t in AGENT.turns
    ]
    same = ("tools", "tool_choice", "media", "thinks", "min_tokens", "stop_token_ids")
    for field in (*same, "n_alternatives", "cache", "sampling", "max_tokens"):
        assert getattr(plan.job, field) == getattr(asked, field), field
    assert (plan.via, plan.model) == (("a", "b"), "mock")
    attachment = json.loads(sent)["attachments"][0]
    assert base64.b64decode(attachment["bytes"]) == PIXELS


@each_case("kind", ["json_schema", "regex", "gbnf", "lark"])
def test_every_structure_passes_a_socket(kind):
    structure = Structure(kind=kind, source='{"type":"object"}')
    sent = line_of.write_chat(FAR, job(structure=structure)).body
    assert resolve_v2(decode_blocks(sent), seed=0).job.structure == structure


def test_a_request_over_a_line_is_refused(monkeypatch):
    monkeypatch.setattr(line_of, "MAX_FRAME_BYTES", 300)
    with pytest.raises(RefusedError, match="too long for a socket: 5"):
        line_of.write_chat(FAR, job(turns=[Turn("user", "x" * 300)]))


def test_tokens_have_their_log_probabilities_where_they_are_those_of_the_text():
    assert SOCKETS.chat is not None
    token, numbers = "Hi", [72, 105]
    told = Logprob(token=token, id=5, bytes=numbers, logprob=-0.5, top_logprobs=[])
    frame = {"type": "frame", "logprobs": [msgspec.to_builtins(told)]}
    for text, expected in {"Hi": [TokenPiece(b"Hi", told)], "Ho": [b"Ho"]}.items():
        asked = job(n_alternatives=1)
        reader = SOCKETS.chat.make_reader(FAR, 1, asked, 3)
        block = {"type": "text", "delta": text}
        assert [*reader.read(line(**frame, block=block))] == expected


def test_each_token_s_id_passes_once_with_the_part_that_it_came_with():
    assert SOCKETS.chat is not None
    asked = job(wants_token_ids=True, thinks=True, tools=(ADD,))
    reader = SOCKETS.chat.make_reader(FAR, 1, asked, 3)
    call = {"type": "tool_use", "tool_call_id": "c", "name": "add", "input": {}}
    blocks: list[tuple[list[int], dict[str, Any]]] = [
        ([1, 2], {"type": "thinking", "delta": "Hm"}),
        ([3], {"type": "text", "delta": "Hi"}),
        ([4, 5], call),
    ]
    pieces = [
        piece
        for ids, block in blocks
        for piece in reader.read(line(type="frame", token_ids=ids, block=block))
    ]
    usage = {"input_tokens": 3, "output_tokens": 6}
    end = {"stop_reason": "tool_use", "token_ids": [6], "end_token_id": 7}
    assert not reader.read(line(type="done", usage=usage, **end))
    last, ended = reader.finish()
    assert ended.end_token_id == 7
    told = [each for each in [*pieces, *last] if isinstance(each, TokenPiece)]
    assert [(each.piece, each.token_id) for each in told] == [
        (b"", 1),
        (b"Hm", 2),
        (b"Hi", 3),
        (b"", 4),
        (b"<tool_call>\n", 5),
        (b"", 6),
    ]
    for wrong in (-1, 2**32):
        with pytest.raises(RemoteError, match="part of an answer"):
            reader.read(line(type="frame", token_ids=[wrong]))
    sent = line_of.write_chat(FAR, job(turns=[], input_tokens=[5, 6])).body
    assert resolve_v2(decode_blocks(sent), seed=0).job.input_tokens == [5, 6]


FAULTS: Final = {
    "part of an answer": b'{"type": "frame", ',
    "of another request": line(type="frame", id="x"),
    "ended with the reason 'cancelled'": line(type="done", stop_reason="cancelled"),
    "the remote failed: no": line(
        type="error", code="backend_unavailable", message="no", retry_after_ms=70
    ),
    "queue is full": line(type="error", code="queue_full", message="queue full"),
    "refuses it: top_p": line(
        type="error", code="invalid_request", message="invalid request: top_p"
    ),
    "failed: model": line(type="error", code="model_not_found", message="model"),
    "failed: later": line(type="error", code="a_later_one", message="later"),
}


@each_case("reason", [*FAULTS])
def test_a_frame_that_is_none_or_an_error_is_one_failure(reason):
    assert SOCKETS.chat is not None
    reader = SOCKETS.chat.make_reader(FAR, 1, job(), 3)
    with pytest.raises(RemoteError, match=reason) as caught:
        reader.read(FAULTS[reason])
    counts = "queue" not in reason and "refuses" not in reason and "model" not in reason
    assert caught.value.counts is counts
    assert caught.value.by_request is ("refuses" in reason)
    assert caught.value.retry_after_ms == (70 if reason.endswith(": no") else None)


def test_an_answer_without_its_last_frame_is_no_answer():
    assert SOCKETS.chat is not None
    reader = SOCKETS.chat.make_reader(FAR, 1, job(), 3)
    reader.read(line(type="frame", block={"type": "text", "delta": "a"}))
    reader.read(line(type="status", status="queued", position=1))
    assert not reader.is_over
    with pytest.raises(RemoteError, match="ended in its middle"):
        reader.finish()


def test_a_prompt_is_counted_by_the_daemon_there():
    assert SOCKETS.counting is not None
    request = SOCKETS.counting.write(FAR, job(max_tokens=50, min_tokens=3))
    assert request is not None
    assert decode_blocks(request.body).max_tokens == 0
    usage = {"input_tokens": 33, "output_tokens": 0}
    body = line(type="done", usage=usage, stop_reason="max_tokens")
    assert SOCKETS.counting.read(body) == 33
    assert SOCKETS.counting.write(FAR, job(media=(IMAGE,))) is None


def test_vectors_and_scores_pass_a_socket():
    assert SOCKETS.embed is not None
    assert SOCKETS.rerank is not None
    embed = EmbedJob(texts=["a", "b"], dimensions=None, task="similarity", via=("x",))
    sent = SOCKETS.embed.write(FAR, embed, b"")
    plan = resolve_embed(decode_embed(sent.body))
    assert (plan.job.texts, plan.job.task, plan.via) == (
        ["a", "b"],
        "similarity",
        ("x",),
    )
    body = line(
        type="embeddings", embeddings=[[3, 4], [0, 1]], usage={"input_tokens": 7}
    )
    [vectors] = SOCKETS.embed.read(FAR, 1, embed, body)
    assert isinstance(vectors, Embedded)
    assert json.loads(vectors.embeddings) == [[0.6, 0.8], [0, 1]]
    assert vectors.n_tokens == 7
    rerank = RerankJob(query="q", documents=["a", "b"])
    sent = SOCKETS.rerank.write(FAR, rerank, b"")
    assert resolve_rerank(decode_rerank(sent.body)).job == rerank
    results = [{"index": 1, "score": 2.0}, {"index": 0, "score": -1.0}]
    [scores] = SOCKETS.rerank.read(FAR, 1, rerank, line(type="rerank", results=results))
    assert isinstance(scores, Scored)
    assert scores.scores == [-1.0, 2.0]
    for wrong in (line(type="done"), line(type="rerank", results=results[:1])):
        with pytest.raises(RemoteError):
            SOCKETS.rerank.read(FAR, 1, rerank, wrong)


def test_a_transcript_passes_a_socket_with_words_and_facts():
    assert SOCKETS.transcribe is not None
    asked = TranscribeJob(
        audio=SOUND,
        prompt="Names",
        timestamps="word",
        wants_logprobs=True,
        max_tokens=9,
    )
    sent = SOCKETS.transcribe.write(FAR, asked, SAMPLES)
    plan = resolve_v2(decode_blocks(sent.body), seed=0)
    assert plan.transcription is not None
    resolved = msgspec.structs.replace(plan.transcription, audio=SOUND, owner=-1)
    assert resolved == asked
    block = {"type": "text", "delta": "One", "start_ms": 5, "end_ms": 99_999}
    facts = {"language": "en", "audio_ms": 1000, "real_time_factor": 0.5}
    usage = {"input_tokens": 3, "output_tokens": 4}
    frames = [
        line(type="frame", block=block),
        line(type="done", stop_reason="end_turn", usage=usage, transcription=facts),
    ]
    words, end = SOCKETS.transcribe.read(FAR, 1, asked, b"\n".join(frames))
    assert isinstance(words, Transcribed)
    assert isinstance(end, TranscriptEnded)
    [word] = words.segments
    assert (word.text, word.start_ms, word.end_ms) == (b"One", 5, 1000)
    assert (end.language, end.computing_ms, end.usage.completion_tokens) == (
        "en",
        500,
        4,
    )
    with pytest.raises(RemoteError):
        SOCKETS.transcribe.read(FAR, 1, asked, frames[0])


def test_the_models_of_a_socket_are_listed_with_their_aliases():
    assert SOCKETS.models is not None
    described = {"backend": "chat", "aliases": ["fast"], "state": "ready"}
    body = line(type="models", models=[described])
    assert [*SOCKETS.models.read(body)] == ["chat", "fast"]
    assert json.loads(SOCKETS.models.request.body)["type"] == "describe"


def test_a_bridge_is_asked_with_the_same_lines():
    far = settings(base_url="https://example.org")
    embed = EmbedJob(texts=["a"], dimensions=None, task="similarity")
    rerank = RerankJob(query="q", documents=["a"])
    chat = job(stop_token_ids=(1,), prefill_only=True)
    asked: list[tuple[str, Job, list[bytes]]] = [
        ("/inferd/generate", chat, []),
        ("/inferd/generate", TranscribeJob(audio=SOUND), [SAMPLES]),
        ("/inferd/embed", embed, []),
        ("/inferd/rerank", rerank, []),
    ]
    for path, each, media in asked:
        through = write_request(api_of(far), far, each, media)
        assert through.path == path
        assert through.body == write_request(SOCKETS, FAR, each, media).body
    models = api_of(far).models
    assert models is not None
    assert models.request.path == "/inferd/models"


STATUSES: Final = {
    "invalid_request": (400, "refuses it: no"),
    "queue_full": (429, "queue is full"),
    "permission_denied": (401, "refuses the key"),
    "internal": (500, "the remote failed: no"),
    "": (502, "the remote failed .HTTP 502."),
}


@each_case("code", [*STATUSES])
def test_a_failure_of_a_bridge_is_that_of_its_frame(code):
    status, reason = STATUSES[code]
    body = line(type="error", code=code, message="no") if code else b"<html>"
    error = SOCKETS.errors.of_status(status, {"retry-after": "7"}, body, 0.0)
    assert re.search(reason, str(error))
    assert error.by_request is (code == "invalid_request")
    if code == "queue_full":
        assert error.retry_after_ms == 7000
    if code:
        assert SOCKETS.errors.of_answer(body).by_request is error.by_request


WRONG: Final[dict[str, dict[str, Any]]] = {
    "n_embd": {"n_embd": 5},
    "generate": {"generate": False},
    "api_key_env": {"api_key_env": "A"},
    "trusted_uids": {"base_url": "https://example.org", "trusted_uids": (5,)},
}


@each_case("key", [*WRONG])
def test_settings_that_do_not_go_together_are_found(key):
    found = INFERD.contradiction(settings(**WRONG[key]))
    assert found is not None
    assert found.key == key
    assert INFERD.contradiction(FAR) is None


def test_only_this_kind_takes_a_directory_of_sockets():
    def find(_name):
        raise AssertionError

    assert INFERD.locate(FAR, find) == FAR
    other = OpenAiSettings(name="o", base_url="sockets:/run", model="m")
    with pytest.raises(ConfigError, match="only kind inferd"):
        OPENAI.locate(other, find)
