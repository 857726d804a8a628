"""Streams of remotes for the tests of single kinds, and jobs that no kind but them takes."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from pydantic import BaseModel, TypeAdapter

from inferd.backend.job import GenerateJob, PastCall, Structure, ToolChoice, Turn
from inferd.ipc.worker import Ended
from inferd.worker.remote.api import AnswerForm, Chat, RemoteApi, S
from inferd.worker.remote.http.json_lines import JsonLineSplitter
from inferd.worker.remote.http.server_sent_events import EventSplitter
from tests.unit.worker.remote.conversations import ADD, CONVERSATIONS, MAX_PART_BYTES
from tests.unit.worker.remote.openai.jobs import job, sampling

PICTURE: Final = b"\x89PNG picture"
TURNS: Final = [
    Turn("system", "Be brief."),
    Turn("system", "Be kind."),
    Turn("user", "What is in #?"),
    Turn("assistant", "Well.", (PastCall(id="c", name="add", arguments='{"a":1}'),)),
    Turn("tool", "2", call_id="c"),
    Turn(
        "assistant",
        "",
        (
            # ids begin anew with each answer
            PastCall(id="c", name="add", arguments=""),
            PastCall(id="d", name="take", arguments='{"b":2}'),
        ),
    ),
    Turn("tool", "3", call_id="d"),
    Turn("tool", "4", call_id="c"),
    Turn("user", "And now?"),
]
AGENT: Final = job(
    turns=TURNS,
    tools=(ADD,),
    marker="#",
    sampling=sampling(temperature=0.5, top_p=0.9, top_k=3),
)
"""A conversation with system messages, an image, and calls whose results come in another
order."""
LOCAL: Final[dict[str, dict[str, Any]]] = {
    "min_tokens": {"min_tokens": 1},
    "stop_token_ids": {"stop_token_ids": (1,)},
    "prefill_only": {"prefill_only": True},
    "cache": {"cache": "off"},
    "logprobs": {"n_alternatives": 1},
    "response_format.pattern": {"structure": Structure(kind="regex", source="a")},
    "logit_bias": {"sampling": sampling(logit_bias={5: 1.0})},
    "messages": {"turns": [Turn("tool", "2", call_id="x")]},
    "messages: the arguments": {
        "turns": [
            Turn("assistant", "", (PastCall(id="c", name="add", arguments="[1]"),))
        ]
    },
}
"""Fields of jobs that are refused, by how the refusal begins."""
FORCED: Final = ToolChoice("required")
NAMED: Final = ToolChoice("named", "add")


def split(form: AnswerForm, body: bytes) -> Iterator[bytes]:
    """Split an answer into the parts that its reader is given."""
    splitter = (
        EventSplitter(MAX_PART_BYTES)
        if form is AnswerForm.EVENTS
        else JsonLineSplitter(MAX_PART_BYTES)
    )
    yield from splitter.feed(body)
    yield from splitter.finish()


def read(
    api: RemoteApi[S], settings: S, parts: Iterable[bytes], asked: GenerateJob
) -> tuple[list[bytes], Ended]:
    """Read parts of an answer; give the pieces and the end."""
    chat: Chat[S] | None = api.chat
    assert chat is not None
    reader = chat.make_reader(settings, 5, asked, 3)
    pieces = [piece for part in parts for piece in reader.read(part)]
    last, end = reader.finish()
    return [each for each in (*pieces, *last) if isinstance(each, bytes)], end


def written(api: RemoteApi[S], settings: S, asked: GenerateJob) -> dict[str, Any]:
    """Write a request with an image for each marker; give its body."""
    assert api.chat is not None
    body = api.chat.write(settings, asked, (PICTURE,)).body
    return msgspec.json.decode(body, type=dict[str, Any])


def bodies(folder: Path) -> Iterator[tuple[bytes, list[bytes]]]:
    """Give the requests of the golden exchanges, and the parts of the answers that succeed."""
    for name in CONVERSATIONS:
        head, _, body = (folder / f"{name}.answer").read_bytes().partition(b"\n\n")
        status, media_type = head.split(b"\n")[0].decode().split()
        request = (folder / f"{name}.request.json").read_bytes()
        if status == "200":
            yield request, [*split(AnswerForm(media_type), body)]
        else:
            yield request, []


def plain(value: Any) -> object:
    """Make JSON of what pydantic has validated: lists are read as they are asked for."""
    match value:
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case str() | int() | float() | None:
            return value
        case BaseModel():
            return value.model_dump(exclude_unset=True)
        case _:
            return [plain(each) for each in value]


def is_known(adapter: TypeAdapter[Any], body: object) -> bool:
    """Tell whether a body has nothing that a vendor's types have not, which are dropped."""
    return plain(adapter.validate_python(body)) == body
