"""How a server is spoken to: requests to bytes, and recordings to answers."""

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from bench.load.recording import Recording, lines
from bench.load.scene import Answer, Ask
from inferd import surfaces
from inferd.client.exchange import Exchange
from inferd.client.frames import ClientBlocksDone
from inferd.client.surfaces import BLOCKS
from inferd.wire.blocks import BlocksRequest, Message, ResponseFormat, TextBlock
from inferd.wire.responses import BlockFrame, TextDelta

TAIL_BYTES: Final = 4096
"""Of an answer, in which its end is looked for."""
ID: Final = "bench"


class ServerError(Exception):
    """What came is no answer; its text is the server's."""


class Speech(Protocol):
    """What differs between servers."""

    piece_mark: bytes
    """Is in the bytes once for each piece."""

    def connected(self) -> socket.socket:
        """Connect."""

    def request(self, ask: Ask) -> bytes:
        """Write a request."""

    def is_over(self, tail: bytes) -> bool:
        """Tell by the last bytes whether an answer is complete."""

    def answer(self, recording: Recording) -> Answer:
        """Read an answer, as far as it came.

        Raises:
            ServerError: it is none.
        """


class Daemon:
    """The daemon's v2 socket, through the client library without its I/O."""

    piece_mark = b'"delta"'

    def __init__(self, address: str) -> None:
        self._path = Path(address) / surfaces.V2.socket

    def connected(self) -> socket.socket:
        """Connect."""
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(self._path))
        return sock

    def request(self, ask: Ask) -> bytes:
        """Write a request."""
        return Exchange(BLOCKS).start(self._blocks(ask))

    def _blocks(self, ask: Ask) -> BlocksRequest:
        turns = [Message(role, [TextBlock(text)]) for role, text in ask.turns]  # type: ignore[arg-type]  # ours
        schema = ask.schema and ResponseFormat(
            type="json_schema", schema=msgspec.Raw(json.dumps(ask.schema).encode())
        )
        return BlocksRequest(
            id=ID,
            messages=turns,
            temperature=0,
            max_tokens=ask.max_tokens,
            min_tokens=ask.max_tokens if ask.is_forced else None,
            response_format=schema or None,
        )

    def is_over(self, tail: bytes) -> bool:
        """Tell whether the terminal frame is there."""
        return tail.endswith(b"}\n") and (
            b'{"type":"done"' in tail or b'{"type":"error"' in tail
        )

    def answer(self, recording: Recording) -> Answer:
        """Read frame after frame, as a client does."""
        exchange = Exchange(BLOCKS)
        exchange.start(BlocksRequest(id=ID, messages=[]))
        pieces: list[tuple[float, str]] = []
        done: ClientBlocksDone | None = None
        for line, end in lines(bytes(recording.data)):
            exchange.feed(line + b"\n")
            match exchange.next_frame():
                case BlockFrame(block=TextDelta(delta=delta)):
                    pieces.append((recording.moment_of(end), delta))
                case ClientBlocksDone() as done:
                    pass
                case _:
                    pass  # nothing that was asked for
        usage = done.usage if done else None
        return as_answer(
            recording,
            pieces,
            n_prompt=usage.input_tokens if usage else 0,
            n_cached=usage.cached_tokens if usage else 0,
            n_tokens=usage.output_tokens if usage else 0,
        )


class Http:
    """A server that speaks as OpenAI's: events over HTTP, one connection a request.

    llama-server is given its quickest way to be greedy; others skip what they do not know.
    """

    piece_mark = b"data: {"

    def __init__(self, address: str) -> None:
        self._host, _, port = address.partition(":")
        self._port = int(port)

    def connected(self) -> socket.socket:
        """Connect."""
        sock = socket.create_connection((self._host, self._port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def request(self, ask: Ask) -> bytes:
        """Write a request."""
        body = json.dumps(self._body(ask)).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _body(self, ask: Ask) -> dict[str, Any]:
        held = {"type": "json_schema", "json_schema": {"schema": ask.schema}}
        return {
            "messages": [{"role": role, "content": text} for role, text in ask.turns],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "samplers": ["top_k"],
            "top_k": 1,
            "max_tokens": ask.max_tokens,
            **({"ignore_eos": True} if ask.is_forced else {}),
            **({"response_format": held} if ask.schema else {}),
        }

    def is_over(self, tail: bytes) -> bool:
        """Tell whether the last event is there, or the answer is none."""
        return b"data: [DONE]" in tail or (
            tail.startswith(b"HTTP/1.1 ") and not tail.startswith(b"HTTP/1.1 200")
        )

    def answer(self, recording: Recording) -> Answer:
        """Read event after event."""
        if not recording.data.startswith(b"HTTP/1.1 200"):
            raise ServerError(recording.data[-TAIL_BYTES:].decode(errors="replace"))
        pieces: list[tuple[float, str]] = []
        told: dict[str, int] = {}
        for line, end in lines(bytes(recording.data)):
            if not line.startswith(self.piece_mark):
                continue
            event = json.loads(line.removeprefix(b"data: "))
            if "error" in event:
                raise ServerError(str(event["error"]))
            if text := text_of(event):
                pieces.append((recording.moment_of(end), text))
            told |= tokens_of(event)
        return as_answer(recording, pieces, **told)


class Bridge(Http):
    """The daemon behind its HTTP bridge, which refuses fields that it does not know."""

    def _body(self, ask: Ask) -> dict[str, Any]:
        body = super()._body(ask)
        for name in ("samplers", "top_k", "ignore_eos"):
            body.pop(name, None)
        if ask.schema:
            body["response_format"]["json_schema"]["name"] = ID
        return body | ({"min_tokens": ask.max_tokens} if ask.is_forced else {})


KINDS: Final[Mapping[str, Callable[[str], Speech]]] = {
    "inferd": Daemon,
    "http": Http,
    "bridge": Bridge,
}


def text_of(event: dict[str, Any]) -> str:
    """Give the text that an event carries."""
    return "".join(
        choice["delta"].get("content") or "" for choice in event.get("choices") or []
    )


def tokens_of(event: dict[str, Any]) -> dict[str, int]:
    """Give the counts of tokens that an event tells."""
    if not (usage := event.get("usage")):
        return {}
    details = usage.get("prompt_tokens_details") or {}
    return {
        "n_prompt": usage["prompt_tokens"],
        "n_cached": details.get("cached_tokens") or 0,
        "n_tokens": usage["completion_tokens"],
    }


def as_answer(
    recording: Recording,
    pieces: list[tuple[float, str]],
    *,
    n_prompt: int = 0,
    n_cached: int = 0,
    n_tokens: int = 0,
) -> Answer:
    """Put an answer together."""
    return Answer(
        sent_at=recording.sent_at,
        times=[moment for moment, _ in pieces],
        lengths=[len(text) for _, text in pieces],
        text="".join(text for _, text in pieces),
        n_prompt=n_prompt,
        n_cached=n_cached,
        n_tokens=n_tokens or len(pieces),
    )


def speech(kind: str, address: str) -> Speech:
    """Choose how to speak."""
    return KINDS[kind](address)
