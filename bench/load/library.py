"""Requests through the client library, as a program makes them."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from bench.load.scene import Answer, Ask
from inferd.client import AnyMessage, Client

KIND: Final = "library"


def play_with_library(address: str, asks: Sequence[Ask]) -> list[Answer]:
    """Have all requests answered by one client, a thread each; give answers in their order.

    Args:
        address: the directory of the daemon's sockets.
        asks: without a schema, and sent at once.

    Raises:
        ClientError: one was not answered.
    """
    with Client(Path(address)) as client, ThreadPoolExecutor(len(asks)) as threads:
        return [*threads.map(partial(_answer, client), asks)]


def _answer(client: Client, ask: Ask) -> Answer:
    messages: list[AnyMessage] = [
        {"role": role, "content": text} for role, text in ask.turns
    ]
    times: list[float] = []
    texts: list[str] = []
    sent_at = time.monotonic()
    with client.stream(
        messages,
        temperature=0.0,
        max_tokens=ask.max_tokens,
        min_tokens=ask.max_tokens if ask.is_forced else 0,
    ) as stream:
        for text in stream:
            times.append(time.monotonic())
            texts.append(text)
        usage = stream.final().usage
    return Answer(
        sent_at=sent_at,
        times=times,
        lengths=[*map(len, texts)],
        text="".join(texts),
        n_prompt=usage.input_tokens,
        n_cached=usage.cached_tokens,
        n_tokens=usage.output_tokens,
    )
