"""The calls of the library as plans: generators that yield what a shell is to do.

A shell runs a plan: it does what the plan yields, passes back what came of it, and returns
what the plan returns. So each call is written once, for threads, trio and asyncio, and for
sockets and HTTP. A plan that gets an exception ends with it.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from msgspec.structs import replace

from inferd import surfaces
from inferd.client.core.answer import AnswerCollector, FinalAnswer, ToolCallEvent
from inferd.client.core.conversation import (
    AnswerOptions,
    ChatOptions,
    Prompt,
    chat_request,
    json_format,
    messages_of,
)
from inferd.client.core.failures import (
    BackendUnavailable,
    ClientError,
    NoDaemonError,
    PermissionDenied,
    ProtocolError,
    ToolLoopExceeded,
)
from inferd.client.core.offers import ServedFacts, offered
from inferd.client.core.structures import AnswerType
from inferd.client.core.tools import CallableTool, ToolFunctions, tools_of
from inferd.client.core.vectors import (
    Embeddings,
    RankedText,
    Ranking,
    embed_batches,
    rerank_batches,
)
from inferd.client.exchange import ClientSurface, embeddings_of
from inferd.client.surfaces import BLOCKS, EMBED, RERANK, describing
from inferd.wire.blocks import BlocksRequest, Message, TextBlock, ToolResultBlock
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.requests import DescribeRequest, EmbedRequest, Request, RerankRequest
from inferd.wire.responses import Response

MAX_TURNS: Final = 10
"""Answers of one ``run_tools`` unless the caller says otherwise: a model that calls tools for
longer repeats itself."""
MAX_SECONDS: Final = 600.0
"""Seconds of one ``run_tools`` unless the caller says otherwise."""
MS_PER_S: Final = 1000

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Response)
R = TypeVar("R")
T = TypeVar("T")


AnySurface = ClientSurface[Request, Response]
"""A surface, whatever its requests: ``ask`` keeps the types."""


@dataclass(frozen=True)
class Ask:
    """Send a request and pass back the list of all frames of its answer."""

    surface: AnySurface
    request: Request


@dataclass(frozen=True)
class CallTool:
    """Call a function of the caller and pass back the text for the model."""

    tool: CallableTool
    call: ToolCallEvent


Effect = Ask | CallTool
Plan = Generator[Effect, object, R]
NewId = Callable[[], str]
"""Makes the id of a request."""


def ask(surface: ClientSurface[Q, A], request: Q) -> Plan[list[A]]:
    """Have a request answered; return all frames.

    Raises:
        ProtocolError: there are none.
    """
    frames = yield Ask(cast("AnySurface", surface), request)
    if not (isinstance(frames, list) and frames):
        raise ProtocolError("the answer has no frames")
    return frames


def ask_blocks(request: BlocksRequest) -> Plan[FinalAnswer]:
    """Have a v2 request answered; return the whole answer."""
    reader = AnswerCollector()
    for frame in (yield from ask(BLOCKS, request)):
        reader.read(frame)
    return reader.answer()


def chat(new_id: NewId, prompt: Prompt, options: ChatOptions) -> Plan[FinalAnswer]:
    """Have a prompt answered."""
    return ask_blocks(chat_request(new_id(), prompt, options, stream=False))


def parse(
    new_id: NewId, wanted: type[T], prompt: Prompt, options: AnswerOptions
) -> Plan[T]:
    """Have a prompt answered with a value of a type.

    Raises:
        TypeError: no schema can be made of the type.
        AnswerNotOfType: the answer was cut short, or is not of the type.
    """
    structure = AnswerType(wanted)
    asked = _with_all(options)
    asked["response_format"] = json_format(structure.schema)
    answer = yield from chat(new_id, prompt, asked)
    return structure.read(answer)


def count_tokens(new_id: NewId, prompt: Prompt, options: ChatOptions) -> Plan[int]:
    """Count the tokens of a rendered prompt; nothing is computed."""
    answer = yield from chat(new_id, prompt, {**options, "max_tokens": 0})
    return answer.usage.input_tokens


@dataclass(frozen=True)
class ToolRun:
    """A conversation in which tools were called."""

    answer: FinalAnswer
    """The last one, which calls no tool."""
    messages: Sequence[Message]
    """The whole conversation, the last answer included."""
    n_turns: int
    """Answers of the model."""


@dataclass(frozen=True)
class ToolBounds:
    """The bounds of ``run_tools``.

    Args:
        max_turns: answers of the model at most.
        deadline: on the clock, after which no turn begins and the running one is ended.
        clock: seconds, as ``time.monotonic``.
    """

    max_turns: int
    deadline: float
    clock: Callable[[], float]

    def next_turn(self, n_turns: int, messages: Sequence[Message]) -> int:
        """Return the milliseconds that the next turn may take.

        Raises:
            ToolLoopExceeded: there is no next turn.
        """
        if n_turns >= self.max_turns:
            raise ToolLoopExceeded(f"more than {self.max_turns} turns", messages)
        if (left_s := self.deadline - self.clock()) <= 0:
            raise ToolLoopExceeded("the time for calling tools is over", messages)
        return max(1, int(left_s * MS_PER_S))


def run_tools(
    new_id: NewId,
    prompt: Prompt,
    functions: ToolFunctions,
    bounds: ToolBounds,
    options: AnswerOptions,
) -> Plan[ToolRun]:
    """Have a prompt answered, and call the tools that the model asks for.

    Raises:
        ToolLoopExceeded: a bound was reached.
    """
    tools = tools_of(functions)
    messages = messages_of(prompt)
    asked = _with_all(options)
    asked["tools"] = [each.definition for each in tools.values()]
    n_turns = 0
    while True:
        asked["deadline_ms"] = bounds.next_turn(n_turns, messages)
        answer = yield from chat(new_id, messages, asked)
        n_turns += 1
        messages = [*messages, answer.message]
        if not answer.tool_calls:
            return ToolRun(answer, messages, n_turns)
        results = yield from _results(tools, answer)
        messages = [*messages, Message("user", [*results])]
        if asked.get("tool_choice") != "none":
            asked["tool_choice"] = "auto"  # a forced call is for the first turn


def _with_all(options: AnswerOptions) -> ChatOptions:
    """Return options to which those of a request may be added."""
    return cast("ChatOptions", {**options})


def _results(
    tools: Mapping[str, CallableTool], answer: FinalAnswer
) -> Plan[list[ToolResultBlock]]:
    results: list[ToolResultBlock] = []
    for call in answer.tool_calls:
        if (tool := tools.get(call.name)) is None:
            text: object = f"error: there is no tool {call.name!r}"
        else:
            text = yield CallTool(tool, call)
        results.append(ToolResultBlock(call.id, [TextBlock(str(text))]))
    return results


def embed(
    new_id: NewId, texts: Sequence[str], request: EmbedRequest
) -> Plan[Embeddings]:
    """Compute the vectors of any number of texts, batch by batch.

    Args:
        new_id: makes the id of each request.
        texts: any number; none of them empty.
        request: the options; its texts are replaced.
    """
    vectors: list[list[float]] = []
    n_tokens, model = 0, ""
    for batch in embed_batches(texts):
        asked = replace(request, id=new_id(), input=[*batch])
        [frame] = yield from ask(EMBED, asked)
        vectors += embeddings_of(frame)
        n_tokens += frame.usage.input_tokens
        model = frame.model
    return Embeddings(vectors=vectors, model=model, input_tokens=n_tokens)


def rerank(
    new_id: NewId, documents: Sequence[str], request: RerankRequest
) -> Plan[Ranking]:
    """Order any number of documents by relevance, batch by batch.

    Args:
        new_id: makes the id of each request.
        documents: any number; none of them empty.
        request: the query and the options; its documents are replaced.
    """
    results: list[RankedText] = []
    n_tokens, model, start = 0, "", 0
    for batch in rerank_batches(request.query, documents):
        asked = replace(request, id=new_id(), documents=[*batch])
        [frame] = yield from ask(RERANK, asked)
        results += [
            RankedText(
                index=start + each.index,
                score=each.score,
                document=batch[each.index],
            )
            for each in frame.results
        ]
        n_tokens += frame.usage.input_tokens
        model = frame.model
        start += len(batch)
    results.sort(key=lambda each: (-each.score, each.index))
    best = results[: request.top_n] if request.top_n else results
    return Ranking(results=best, model=model, input_tokens=n_tokens)


_DESCRIBED: Final = (surfaces.V2, surfaces.EMBED, surfaces.RERANK)


def models(new_id: NewId) -> Plan[list[ServedFacts]]:
    """List the models that requests may name.

    A socket that this user may not use, or that nothing serves, is left out.

    Raises:
        ClientError: no socket answers.
    """
    answers: list[Sequence[OfferedFacts]] = []
    failure: ClientError | None = None
    for surface in _DESCRIBED:
        request = DescribeRequest(id=new_id())
        try:
            [frame] = yield from ask(describing(surface), request)
        except (NoDaemonError, BackendUnavailable, PermissionDenied) as error:
            failure = failure or error
        else:
            answers.append(frame.models)
    if not answers and failure is not None:
        raise failure
    return offered(answers)
