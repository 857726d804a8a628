"""Golden conversations: what each must come to, whichever API a remote speaks.

The test of a kind has a folder with an exchange for each of ``CONVERSATIONS``, in the form that
the vendor documents, and says in it where each came from:

``NAME.request.json``
    the body that is to be sent
``NAME.answer``
    a line with the status and the media type, further header lines, an empty line, and the body
    as it came

``replay`` writes the request, compares it, reads the answer whole and byte by byte, and returns
what a client of v2 would get of it: ``CONVERSATIONS[NAME]`` says what that must be.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from inferd.backend.events import Text, Thinking, ToolUse
from inferd.backend.job import GenerateJob, Sampling, Structure, ToolSpec, Turn
from inferd.dialects.families.remote import REMOTE
from inferd.ipc.worker import Overflow
from inferd.output.parser import BlockParser, merge_deltas
from inferd.output.stops import StopMatcher
from inferd.wire.responses import StopReason, Usage
from inferd.worker.remote.api import AnswerForm, Chat, Piece, RemoteApi, S, TokenPiece
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.http.json_lines import JsonLineSplitter
from inferd.worker.remote.http.server_sent_events import EventSplitter

MAX_PART_BYTES: Final = 2**20
ADD: Final = ToolSpec(
    name="add",
    description="Adds two numbers.",
    input_schema=json.dumps(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        }
    ),
)
NUMBER: Final = Structure(
    kind="json_schema",
    source=json.dumps(
        {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        }
    ),
)
USAGE: Final = Usage(12, 5)
OVERFLOW: Final = Overflow(prompt_tokens=5000, answer_tokens=1, n_ctx=4096)

Said = Text | Thinking | tuple[str, object]
"""A call is its name and its input."""


class Outcome(NamedTuple):
    """What a client gets."""

    said: Sequence[Said] = ()
    stop_reason: StopReason = "end"
    stop_sequence: str | None = None
    structure_complete: bool | None = None
    usage: Usage = USAGE
    overflow: Overflow | None = None


class Conversation(NamedTuple):
    """A job, and what its answer must come to."""

    job: GenerateJob
    outcome: Outcome


def _job(
    *turns: Turn, max_tokens: int = 100, temperature: float | None = 0.0, **fields
) -> GenerateJob:
    sampling = Sampling(temperature=temperature, top_p=None, top_k=None, seed=1)
    return GenerateJob(
        turns=[*turns], max_tokens=max_tokens, sampling=sampling, **fields
    )


CONVERSATIONS: Final[Mapping[str, Conversation]] = {
    "text": Conversation(
        _job(Turn("system", "Be brief."), Turn("user", "Say hello.")),
        Outcome([Text("Hello there.")]),
    ),
    "call": Conversation(
        _job(Turn("user", "What is 1 + 2?"), tools=(ADD,)),
        Outcome([("add", {"a": 1, "b": 2})]),
    ),
    "structure": Conversation(
        _job(Turn("user", "A number as JSON."), structure=NUMBER),
        Outcome([Text('{"n": 3}')], structure_complete=True),
    ),
    "thinking": Conversation(
        _job(Turn("user", "What is 1 + 2?"), thinks=True, temperature=None),
        Outcome([Thinking("One and two."), Text("3")]),
    ),
    "stop": Conversation(
        _job(Turn("user", "Count."), stops=(" END",)),
        Outcome([Text("one two")], stop_sequence=" END"),
    ),
    "length": Conversation(
        _job(Turn("user", "Tell a story."), max_tokens=5),
        Outcome([Text("Once upon a time")], stop_reason="length"),
    ),
    "overflow": Conversation(
        _job(Turn("user", "Too long.")), Outcome(overflow=OVERFLOW)
    ),
}


def replay(api: RemoteApi[S], settings: S, name: str, folder: Path) -> Outcome:
    """Have a kind answer a conversation with a recorded exchange; return what comes of it."""
    job = CONVERSATIONS[name].job
    assert api.chat is not None
    request = api.chat.write(settings, job, ())
    expected = json.loads((folder / f"{name}.request.json").read_bytes())
    assert msgspec.json.decode(request.body) == expected
    head, _, body = (folder / f"{name}.answer").read_bytes().partition(b"\n\n")
    first, *lines = head.decode().splitlines()
    status, media_type = first.split()
    if status != "200":
        headers = {
            k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines)
        }
        error = api.errors.of_status(int(status), headers, body, 0.0)
        return Outcome(overflow=error.overflow)
    assert media_type == request.form.value
    whole = _read(api.chat, settings, job, request.form, [body])
    each_byte = [body[at : at + 1] for at in range(len(body))]
    assert _read(api.chat, settings, job, request.form, each_byte) == whole
    return whole


def _read(
    chat: Chat[S],
    settings: S,
    job: GenerateJob,
    form: AnswerForm,
    received: Iterable[bytes],
) -> Outcome:
    splitter = (
        EventSplitter(MAX_PART_BYTES)
        if form is AnswerForm.EVENTS
        else JsonLineSplitter(MAX_PART_BYTES)
    )
    reader = chat.make_reader(settings, 7, job, 1)
    pieces: list[Piece] = []
    try:
        for data in received:
            for part in splitter.feed(data):
                pieces += reader.read(part)
        for part in splitter.finish():
            pieces += reader.read(part)
        last, ended = reader.finish()
    except RemoteError as error:
        return Outcome(overflow=error.overflow)
    assert ended.ticket == 7
    said, stop_sequence = _said(job, [*pieces, *last])
    return Outcome(
        said,
        ended.stop_reason,
        stop_sequence,
        ended.structure_complete,
        ended.usage,
    )


def _said(job: GenerateJob, pieces: Iterable[Piece]) -> tuple[list[Said], str | None]:
    """Parse pieces as the daemon does."""
    texts = (each.piece if isinstance(each, TokenPiece) else each for each in pieces)
    parser = BlockParser(
        REMOTE.regions,
        job.tools,
        calls_tools=job.may_call,
        is_structured=job.has_structured_text,
    )
    blocks = [*parser.feed(b"".join(texts).decode()), *parser.finish()]
    stops = StopMatcher(job.stops)
    said: list[Said] = []
    for block in merge_deltas(blocks):
        match block:
            case Text(delta):
                said.append(Text(stops.feed(delta) + stops.finish()))
            case ToolUse():
                said.append((block.name, block.input))
            case Thinking():
                said.append(block)
            case _:
                raise AssertionError(block)
    return said, stops.matched
