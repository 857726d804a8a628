"""The plans of calls, run by a shell that answers from a list."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from inferd.client.core import plans
from inferd.client.core.conversation import AnyMessage, chat_request, messages_of
from inferd.client.core.failures import (
    BackendUnavailable,
    ClientError,
    NoDaemonError,
    ToolLoopExceeded,
)
from inferd.client.core.vectors import BATCH_BYTES, BATCH_TEXTS, embed_batches
from inferd.client.frames import ClientBlocksDone, ClientErrorFrame
from inferd.limits.protocol import MAX_RERANK_DOCUMENTS
from inferd.wire.blocks import ImageAttachment, ImageBlock, Message
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.requests import EmbedRequest, RerankRequest
from inferd.wire.responses import (
    BlockFrame,
    EmbeddingsFrame,
    EncodeUsage,
    ModelsFrame,
    RankedDocument,
    RerankFrame,
    TextDelta,
    ToolCall,
    UsageV2,
)


def done(reason: str = "end_turn") -> ClientBlocksDone:
    usage = UsageV2(input_tokens=5, output_tokens=2)
    return ClientBlocksDone(id="", usage=usage, stop_reason=reason, backend="m")


def said(text: str) -> list[Any]:
    return [BlockFrame(id="", block=TextDelta(text)), done()]


def called(*names: str) -> list[Any]:
    calls = [ToolCall(name, name, {}) for name in names]
    return [*(BlockFrame(id="", block=each) for each in calls), done("tool_use")]


class Shell:
    """Runs plans: each request is answered by the next entry of a list."""

    def __init__(self, *answers: Any) -> None:
        self._answers = deque(answers)
        self.asked: list[Any] = []
        self.called: list[str] = []

    def new_id(self) -> str:
        return str(len(self.asked))

    def run(self, plan: Any) -> Any:
        result: Any = None
        try:
            while True:
                effect = plan.send(result)
                while isinstance(result := self._do(effect), Exception):
                    effect = plan.throw(result)
        except StopIteration as end:
            return end.value

    def _do(self, effect: Any) -> Any:
        if isinstance(effect, plans.CallTool):
            self.called.append(effect.call.name)
            return effect.tool.bind(effect.call)()
        self.asked.append(effect.request)
        answer = self._answers.popleft()
        return answer(effect.request) if isinstance(answer, Callable) else answer  # type: ignore[arg-type]


def bounds(*, max_turns: int = 9, times: Sequence[float] = ()) -> plans.ToolBounds:
    clock = iter([*times, *[0.0] * 99])
    return plans.ToolBounds(max_turns, 10.0, lambda: next(clock))


def noon() -> str:
    """Tell the time."""
    return "12:00"


def test_a_prompt_is_a_text_or_a_conversation_and_its_mistakes_are_named():
    conversation: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        *messages_of("again"),
    ]
    assert [each.role for each in messages_of(conversation)] == [
        *("system", "user", "user")
    ]
    for wrong in ({"role": "tool", "content": "x"}, {"role": "user"}, {"rôle": "user"}):
        with pytest.raises(ClientError, match="message 0"):
            messages_of([wrong])
    with pytest.raises(TypeError, match="temprature"):
        chat_request("1", "x", {"temprature": 1}, stream=True)  # type: ignore[typeddict-unknown-key]


def test_pictures_go_with_the_messages_that_refer_to_them():
    picture = ImageAttachment(id="1", width=1, height=1, bytes="AAAA")
    asked: AnyMessage = {
        "role": "user",
        "content": [{"type": "image", "attachment_id": "1"}],
    }
    request = chat_request("1", [asked], {"attachments": [picture]}, stream=True)
    assert request.attachments == [picture]
    assert request.messages == [Message("user", [ImageBlock("1")])]


def test_tools_are_called_until_an_answer_calls_none():
    shell = Shell(called("noon", "midnight"), said("It is noon."))
    options: Any = {"tool_choice": "required"}
    plan = plans.run_tools(shell.new_id, "When?", [noon], bounds(), options)
    run = shell.run(plan)
    assert (run.answer.text, run.n_turns, shell.called) == ("It is noon.", 2, ["noon"])
    first, second = shell.asked
    assert (first.tool_choice, second.tool_choice) == ("required", "auto")
    assert first.deadline_ms == 10_000
    sent = msgspec.json.decode(msgspec.json.encode(second.messages[2]))
    assert [each["content"][0]["text"] for each in sent["content"]] == [
        "12:00",
        "error: there is no tool 'midnight'",
    ]
    assert [each.role for each in run.messages] == [
        *("user", "assistant", "user", "assistant")
    ]


def test_tools_are_bounded_by_turns_and_by_time():
    for limit, n_asked in [(bounds(max_turns=2), 2), (bounds(times=[0, 11]), 1)]:
        shell = Shell(*[called("noon")] * 3)
        with pytest.raises(ToolLoopExceeded) as caught:
            shell.run(plans.run_tools(shell.new_id, "When?", [noon], limit, {}))
        assert len(shell.asked) == n_asked
        assert len(caught.value.messages) == 1 + 2 * n_asked


def test_texts_are_embedded_in_batches_of_bounded_number_and_size():
    long = "x" * (BATCH_BYTES // 2 + 1)
    sizes = [len(each) for each in embed_batches(["a"] * (BATCH_TEXTS + 1))]
    assert sizes == [BATCH_TEXTS, 1]
    assert [len(each) for each in embed_batches([long, long, "a", 3 * long])] == [
        *(1, 2, 1)
    ]

    def vectors(request: Any) -> list[Any]:
        found = [[float(len(text))] for text in request.input]
        return [
            EmbeddingsFrame(
                id="",
                embeddings=Raw(msgspec.json.encode(found)),
                dimensions=1,
                model="e",
                usage=EncodeUsage(len(found)),
                backend="m",
            )
        ]

    texts = ["x" * n for n in range(1, BATCH_TEXTS + 2)]
    shell = Shell(vectors, vectors)
    found = shell.run(plans.embed(shell.new_id, texts, EmbedRequest(task="similarity")))
    assert found.vectors == [[float(n)] for n in range(1, BATCH_TEXTS + 2)]
    assert found.input_tokens == len(texts)
    assert {each.task for each in shell.asked} == {"similarity"}
    assert found.numpy().shape == (len(texts), 1)
    assert Shell().run(plans.embed(str, [], EmbedRequest())).vectors == []


def test_documents_of_all_batches_are_ranked_together():
    def ranked(request: Any) -> list[Any]:
        texts = request.documents
        scores = [
            RankedDocument(index, float(text)) for index, text in enumerate(texts)
        ]
        usage = EncodeUsage(1)
        return [RerankFrame(id="", results=scores, model="r", usage=usage, backend="m")]

    n_documents = MAX_RERANK_DOCUMENTS + 2
    documents = [str(n) for n in range(n_documents)]
    shell = Shell(ranked, ranked)
    request = RerankRequest(query="q", documents=[], top_n=3)
    ranking = shell.run(plans.rerank(shell.new_id, documents, request))
    assert [(each.index, each.document) for each in ranking.results] == [
        (n, str(n)) for n in range(n_documents - 1, n_documents - 4, -1)
    ]


def test_models_are_of_all_sockets_that_answer():
    facts = OfferedFacts(backend="m", aliases=["n"], state="ready", generate=True)
    frame = ModelsFrame(id="", models=[facts])
    refusal = ClientErrorFrame(id="", code="backend_unavailable", message="no")
    shell = Shell([frame], NoDaemonError("none"), BackendUnavailable(refusal))
    [model] = shell.run(plans.models(shell.new_id))
    assert (model.name, model.aliases, model.can) == ("m", ["n"], {"generate"})
    nobody = Shell(*[NoDaemonError("none")] * 3)
    with pytest.raises(NoDaemonError):
        nobody.run(plans.models(nobody.new_id))
