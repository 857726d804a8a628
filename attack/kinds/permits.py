"""Work that takes long by right: who does it keeps nobody else waiting for ever."""

import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final

import trio

from attack.asking import Question, plain, typed
from attack.load import CHAT, HELLO, Bounds, Load
from attack.measures import LOST
from attack.place import Place
from inferd import surfaces
from inferd.limits.admission import QUANTUM_S
from inferd.limits.worker import PREFILL_ALONE_S
from tests.daemon.harness import llamacpp, mock
from torture.clients import connect

KIND: Final = "permits"
FIRST_TOKEN_S: Final = QUANTUM_S + 2 * PREFILL_ALONE_S
"""Seconds in which another user's short answer comes: it alone waits, so a permit is its own
after one quantum and the step that is under way then, and its prompt is read in the next but
one: that in between is short, and a step aims at half of what it may take (ADR 0054, ADR 0088)."""
BOUNDS: Final = Bounds(max_s=FIRST_TOKEN_S)
QUESTION: Final = plain("Name a city.", max_tokens=1, temperature=0)
SPEECH: Final = {"backend": [mock(tokens=["x"], transcribe=True, audio=True)]}
EMBED: Final = {"backend": [llamacpp("embedded:embed")]}
RERANK: Final = {"backend": [llamacpp("embedded:rerank")]}
ENDLESS: Final = {
    "backend": [mock(tokens=["x" * 500] * 2_000, token_delay_ms=1)],
    "limits": {"write_timeout_s": 60.0},
}
"""Answers of a megabyte: the configuration may have no more."""
DRIP_S: Final = 5.0
RATE: Final = 16_000
LONG: Final = {"max_tokens": 8000, "min_tokens": 8000}


async def on_each(
    place: Place, n: int, one: Callable[[Place, int], Awaitable[None]]
) -> None:
    """Do something as often at once, over and over."""

    async def forever(number: int) -> None:
        while True:
            try:
                await one(place, number)
            except (OSError, trio.BrokenResourceError):
                place.tally.codes[LOST] += 1
            await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        for number in range(place.count(n)):
            nursery.start_soon(forever, number)
        await trio.sleep(1)
        place.begun()


async def hog(place: Place, number: int, *, question: Question) -> None:
    """Ask, read the answer to its end, and ask again."""
    await place.ask(question, patience_s=600)


async def pipeline(place: Place, number: int, *, question: Question) -> None:
    """Send a request over and over on one connection, and read what comes."""
    async with (
        await connect(place.directory / question.leaf) as stream,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_send_on, stream, question.line)
        while data := await stream.receive_some(64 * 1024):
            place.tally.codes["done"] += data.count(b'"type":"done"')
            place.tally.codes["error"] += data.count(b'"type":"error"')
        nursery.cancel_scope.cancel()


async def _send_on(stream: trio.SocketStream, line: bytes) -> None:
    try:
        while True:
            await stream.send_all(line)
    except trio.BrokenResourceError:
        return


async def read_nothing(place: Place, number: int) -> None:
    """Ask for much, and read a byte of it."""
    async with await connect(place.directory / surfaces.INFER.socket) as stream:
        await stream.send_all(plain("x", max_tokens=100_000).line)
        await stream.receive_some(1)
        await trio.sleep(30)


async def read_slowly(place: Place, number: int) -> None:
    """Ask for much, and read a little of it at a time."""
    async with await connect(place.directory / surfaces.INFER.socket) as stream:
        await stream.send_all(plain("x", max_tokens=100_000).line)
        while await stream.receive_some(256):
            await trio.sleep(0.1)


async def drip(place: Place, number: int) -> None:
    """Open a recording, and append a sample to it now and then."""
    async with await connect(place.directory / surfaces.V2.socket) as stream:
        await stream.send_all(recording(f"r{number}").line)
        place.tally.codes["opened"] += 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_append, stream, f"r{number}")
            while data := await stream.receive_some(64 * 1024):
                for line in data.split(b"\n"):
                    if b'"type":"error"' in line:
                        place.tally.codes[str(json.loads(line)["code"])] += 1
            nursery.cancel_scope.cancel()


def recording(name: str) -> Question:
    """Ask for what is said in sound that is still recorded."""
    sound = {"kind": "audio", "id": "a", "sample_rate": RATE, "open": True}
    block = {"type": "audio", "attachment_id": "a"}
    messages = [{"role": "user", "content": [block]}]
    return Question.of(surfaces.V2.socket, name, messages=messages, attachments=[sound])


async def _append(stream: trio.SocketStream, request_id: str) -> None:
    append = {"type": "append", "id": request_id, "attachment_id": "a"}
    line = json.dumps({**append, "bytes": "AAAAAA=="}).encode() + b"\n"
    try:
        while True:
            await stream.send_all(line)
            await trio.sleep(DRIP_S)
    except trio.BrokenResourceError:
        return


def batch(n_texts: int, n_words: int) -> Question:
    """Ask for vectors of many texts."""
    text = "word " * n_words
    return Question.of(surfaces.EMBED.socket, "texts", input=[text] * n_texts)


def ranking(n_texts: int, n_words: int) -> Question:
    """Ask for a ranking of many texts."""
    texts = ["word " * n_words] * n_texts
    return Question.of(
        surfaces.RERANK.socket, "documents", query="word", documents=texts
    )


def load(name: str, about: str, n: int, one: Any, **fields: Any) -> Load:
    """Make an attack that does something as often at once."""
    return Load(
        name=name,
        kind=KIND,
        about=f"{about}; {n} at once",
        run=partial(on_each, n=n, one=one),
        **{"bounds": BOUNDS, "config": CHAT, "question": QUESTION, **fields},
    )


def attacks() -> Iterator[Load]:
    """Give all of them."""
    long = typed("Tell a story.", **LONG)
    yield load("hogs", "answers of 8000 tokens", 2, partial(hog, question=long))
    yield load("many-hogs", "answers of 8000 tokens", 40, partial(hog, question=long))
    yield load(
        "uncached-hogs",
        'the same with "cache": "off"',
        8,
        partial(hog, question=typed("Tell a story.", cache="off", **LONG)),
    )
    yield load(
        "first-hogs",
        "the same with the highest priority",
        8,
        partial(hog, question=typed("Tell a story.", priority=10, **LONG)),
    )
    letters = {"grammar": "root ::= [a-z ]*\n", "max_tokens": 8000}
    yield load(
        "held-hogs",
        "endless answers that are held to a grammar",
        8,
        partial(hog, question=plain("Tell a story.", **letters)),
    )
    yield load(
        "long-prompts",
        "prompts of 8000 tokens",
        8,
        partial(hog, question=plain("word " * 7900, max_tokens=1)),
    )
    short = plain("hello", max_tokens=1)
    yield load(
        "pipelines", "short requests, pipelined", 200, partial(pipeline, question=short)
    )
    yield load(
        "slow-readers",
        "answers that are read slowly",
        20,
        read_slowly,
        config=ENDLESS,
        question=HELLO,
        is_any=False,
    )
    yield load(
        "no-readers",
        "answers that nobody reads",
        20,
        read_nothing,
        config=ENDLESS,
        question=HELLO,
        is_any=False,
    )
    yield load(
        "recordings",
        "recordings with a sample each 5 s",
        8,
        drip,
        config=SPEECH,
        question=HELLO,
        is_any=False,
    )
    yield load(
        "many-recordings",
        "recordings with a sample each 5 s",
        200,
        drip,
        config=SPEECH,
        question=HELLO,
        is_any=False,
    )
    yield load(
        "texts",
        "2,048 texts of 400 words to embed",
        4,
        partial(hog, question=batch(2048, 400)),
        config=EMBED,
        question=Question.of(surfaces.EMBED.socket, input=["hello"]),
        is_any=False,
    )
    yield load(
        "documents",
        "256 documents of 400 words to rank",
        4,
        partial(hog, question=ranking(256, 400)),
        config=RERANK,
        question=Question.of(
            surfaces.RERANK.socket, query="hello", documents=["hello"]
        ),
        is_any=False,
    )
