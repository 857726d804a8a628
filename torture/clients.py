"""Clients that count what they are told: a request ends in one frame, no more, no less."""

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import trio

from inferd import surfaces
from tests.daemon.connection import TERMINAL, Frame, blocks, generate, to_line

PATIENCE_S: Final = 60.0
"""Seconds after which a request that has not ended hangs."""
RETRY_S: Final = 0.005
"""Seconds before another try where the backlog is full."""
READ_BYTES: Final = 64 * 1024
DIGITS: Final = 4
"""Of a vector that have to be the same: the last bits of a sum depend on who else is in
the batch."""
SHOWN_CHARS: Final = 300


class Question(NamedTuple):
    """A request without its id, and where to send it."""

    leaf: str
    line: str
    """JSON."""

    def to_line(self, request_id: str) -> bytes:
        """Write it."""
        return to_line({**json.loads(self.line), "id": request_id})


def text(prompt: str, **fields: object) -> Question:
    """Ask for text on the v1 socket."""
    return Question(surfaces.INFER.socket, json.dumps(generate(prompt, **fields)))


def typed(prompt: str, **fields: object) -> Question:
    """Ask for blocks on the v2 socket."""
    return Question(surfaces.V2.socket, json.dumps(blocks(prompt, **fields)))


def vectors(*texts: str) -> Question:
    """Ask for embeddings."""
    return Question(surfaces.EMBED.socket, json.dumps({"input": texts}))


def scores(query: str, *documents: str) -> Question:
    """Ask for a ranking."""
    fields = {"query": query, "documents": documents}
    return Question(surfaces.RERANK.socket, json.dumps(fields))


@dataclass
class Answer:
    """All that came back for one request."""

    request_id: str
    frames: list[Frame] = field(default_factory=list)
    n_terminal: int = 0
    is_refused: bool = False
    """Nobody took the connection."""
    hangs: bool = False
    seconds: float = 0.0
    """Until its terminal frame."""

    def hear(self, frame: Frame) -> None:
        """Take note of a frame."""
        self.frames.append(frame)
        self.n_terminal += frame["type"] in TERMINAL

    @property
    def last(self) -> Frame:
        """The last frame; empty without one."""
        return self.frames[-1] if self.frames else {}

    @property
    def code(self) -> str:
        """The error's code; empty for a success."""
        return str(self.last.get("code", ""))

    @property
    def is_whole(self) -> bool:
        """Whether it ended in one terminal frame, the last of all."""
        return self.n_terminal == 1 and self.last["type"] in TERMINAL


def essence(frames: Iterable[Frame]) -> str:
    """Give of an answer what has to be the same whenever it is asked for again."""
    said: list[object] = []
    for frame in frames:
        match frame:
            case {"type": "token", "content": content}:
                said.append(content)
            case {"type": "frame", "block": {"delta": delta}}:
                said.append(delta)
            case {"type": "done", "content": content, "stop_reason": reason}:
                said.append(f" = {content} [{reason}]")
            case {"type": "done", "stop_reason": reason}:
                said.append(f" [{reason}]")
            case {"type": "embeddings", "embeddings": rows}:
                said.append([[round(each, DIGITS) for each in row] for row in rows])
            case {"type": "rerank", "results": results}:
                said.append(json.dumps(results))
            case _:
                continue
    return "".join(map(str, said))


async def connect(path: Path) -> trio.SocketStream:
    """Connect, waiting while the kernel holds as many connections as it may.

    Raises:
        OSError: nobody listens.
    """
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)  # noqa: FBT003  # socket's own signature
    try:
        await _connect(sock, path)
    except BaseException:
        sock.close()
        raise
    return trio.SocketStream(trio.socket.from_stdlib_socket(sock))


async def _connect(sock: socket.socket, path: Path) -> None:
    while True:
        try:
            sock.connect(str(path))
        except BlockingIOError:
            await trio.sleep(RETRY_S)
        else:
            return


async def ask(
    directory: Path,
    question: Question,
    request_id: str,
    *,
    patience_s: float = PATIENCE_S,
    heard: Callable[[Frame], None] = lambda _: None,
) -> Answer:
    """Have one request answered on a connection of its own, and hear what comes after.

    Args:
        directory: where the sockets are.
        question: what to ask.
        request_id: of the request.
        patience_s: seconds after which it hangs.
        heard: called with each frame as it comes.
    """
    answer = Answer(request_id)
    began_at = trio.current_time()
    with trio.move_on_after(patience_s) as scope:
        try:
            stream = await connect(directory / question.leaf)
        except OSError:
            answer.is_refused = True
            return answer
        await converse(stream, question.to_line(request_id), answer, heard=heard)
    answer.hangs = scope.cancelled_caught
    answer.seconds = answer.seconds or trio.current_time() - began_at
    return answer


async def converse(
    stream: trio.SocketStream,
    line: bytes,
    answer: Answer,
    *,
    heard: Callable[[Frame], None] = lambda _: None,
) -> None:
    """Send a request, hear all that comes, and close the connection.

    Args:
        stream: a connection.
        line: the request.
        answer: is told each frame.
        heard: called with each frame as it comes.
    """
    async with stream:
        with suppress(trio.BrokenResourceError):  # closed before it read all
            await stream.send_all(line)
        await _listen(stream, answer, heard)


async def _listen(
    stream: trio.SocketStream, answer: Answer, heard: Callable[[Frame], None]
) -> None:
    began_at = trio.current_time()
    rest = b""
    try:
        while data := await stream.receive_some(READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for each in lines:
                answer.hear(frame := json.loads(each))
                heard(frame)
            if answer.n_terminal and not answer.seconds:
                answer.seconds = trio.current_time() - began_at
                await stream.send_eof()  # what comes yet is one frame too many
    except trio.BrokenResourceError:
        return  # the daemon has gone


@dataclass
class Ledger:
    """What became of all requests.

    Args:
        expected: the essence of each question's undisturbed answer.
    """

    expected: Mapping[Question, str] = field(default_factory=dict)
    n_asked: int = 0
    n_done: int = 0
    n_lost: int = 0
    n_doubled: int = 0
    n_hung: int = 0
    n_refused: int = 0
    """Connections that nobody took."""
    n_wrong: int = 0
    """Answers that an undisturbed daemon does not give."""
    codes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """Of those that were answered in full."""
    samples: list[str] = field(default_factory=list)
    """Of each kind of misfortune the first."""

    def enter(self, question: Question, answer: Answer) -> None:
        """Take note of an answer."""
        self.n_asked += 1
        if answer.is_refused:
            self.n_refused += 1
        elif answer.hangs:
            self._note("n_hung", answer)
        elif answer.n_terminal > 1 or (answer.n_terminal and not answer.is_whole):
            self._note("n_doubled", answer)
        elif not answer.n_terminal:
            self._note("n_lost", answer)
        elif answer.code:
            self.codes[answer.code] += 1
        else:
            self._succeed(question, answer)

    def _succeed(self, question: Question, answer: Answer) -> None:
        self.n_done += 1
        self.seconds.append(answer.seconds)
        wanted = self.expected.get(question)
        if wanted is not None and essence(answer.frames) != wanted:
            self._note("n_wrong", answer)

    def _note(self, kind: str, answer: Answer) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if getattr(self, kind) == 1:
            self.samples.append(
                f"{kind}: {answer.request_id} ended in {str(answer.last)[:SHOWN_CHARS]}"
            )

    def counts(self) -> dict[str, int]:
        """Give all counts."""
        names = ("asked", "done", "lost", "doubled", "hung", "refused", "wrong")
        return {name: getattr(self, f"n_{name}") for name in names} | self.codes

    def problems(self, *allowed: str, refused_too: bool = True) -> list[str]:
        """Name the promises that were not kept.

        Args:
            allowed: codes of errors that may come.
            refused_too: whether nobody may be refused a connection.
        """
        names = ["lost", "doubled", "hung", "wrong"] + ["refused"] * refused_too
        bad = {name: n for name, n in self.counts().items() if n and name in names}
        bad |= {code: n for code, n in self.codes.items() if code not in allowed}
        words = [f"{n} {name}" for name, n in bad.items()]
        return words + (self.samples if words else [])
