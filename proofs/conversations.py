"""Conversations over HTTP with an entry that may fail, and what becomes of each turn."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import httpx2
import msgspec
import trio

from tests.daemon.fleet import BridgeFleet, chat, head

TRIES: Final = 60
"""Times that a turn is asked which nobody has begun to answer."""
PAUSE_S: Final = 0.25
"""Seconds between two of them."""
PATIENCE_S: Final = 120.0
"""Seconds after which a turn hangs."""
N_TURNS: Final = 2
LENGTH: Final = 40
"""Words of a beginning: more than the entry takes for chance."""


@dataclass
class Tally:
    """What became of all turns."""

    counts: Counter[str] = field(default_factory=Counter)
    first_s: list[float] = field(default_factory=list)
    """Seconds until the first event of each that was answered."""
    ids: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The answers of each conversation, as the bridges call them."""
    cached: list[int] = field(default_factory=list)
    """Tokens of each later prompt that were in the cache."""
    samples: list[str] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        """Count, and keep the first of a kind."""
        self.counts[kind] += 1
        if self.counts[kind] == 1:
            self.samples.append(f"{kind}: {text[:200]}")


class BegunError(Exception):
    """An answer had begun and did not end."""


class RefusedError(Exception):
    """Nobody has begun to answer."""


@dataclass(frozen=True)
class Talk:
    """How conversations are had.

    Args:
        url: of the entry.
        tokens: of those who have them, in turns.
        model: who answers.
        tally: is told all.
    """

    url: str
    tokens: Sequence[str]
    model: str
    tally: Tally

    async def hold(
        self,
        names: Sequence[str],
        n_at_once: int,
        done: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Have conversations, some at once.

        Args:
            names: the beginning of each.
            n_at_once: how many.
            done: is told how many are over.
        """
        left = list(enumerate(names))[::-1]
        n_done = 0

        async def speak(client: httpx2.AsyncClient) -> None:
            nonlocal n_done
            while left:
                index, name = left.pop()
                token = self.tokens[index % len(self.tokens)]
                await self._converse(client, name, token)
                n_done += 1
                done(n_done)

        limits = httpx2.Limits(max_connections=n_at_once)
        async with (
            httpx2.AsyncClient(limits=limits, timeout=PATIENCE_S, trust_env=False) as c,
            trio.open_nursery() as nursery,
        ):
            for _ in range(n_at_once):
                nursery.start_soon(speak, c)

    async def _converse(
        self, client: httpx2.AsyncClient, name: str, token: str
    ) -> None:
        texts = [f"{name}: {'a word of it ' * LENGTH}"]
        ids: tuple[str, ...] = ()
        for turn in range(N_TURNS):
            body = chat(*texts, model=self.model, stream=True, max_tokens=8)
            body["stream_options"] = {"include_usage": True}
            answer = await self._turn(client, body, token)
            if answer is None:
                break
            said, answer_id = answer
            ids = (*ids, answer_id)
            texts += [said, f"And then, {turn}?"]
        self.tally.ids[name] = ids

    async def _turn(
        self, client: httpx2.AsyncClient, body: Mapping[str, object], token: str
    ) -> tuple[str, str] | None:
        """Ask until somebody has begun; return what was said, and the id of it."""
        for _ in range(TRIES):
            try:
                answer = await self._ask(client, body, token)
            except RefusedError as error:
                self.tally.note("asked_again", str(error))
                await trio.sleep(PAUSE_S)
            except BegunError as error:
                self.tally.note("failed_when_begun", str(error))
                return None
            else:
                self.tally.counts["answered"] += 1
                return answer
        self.tally.note("lost", "asked too often")
        return None

    async def _ask(
        self, client: httpx2.AsyncClient, body: Mapping[str, object], token: str
    ) -> tuple[str, str]:
        url = f"{self.url}/v1/chat/completions"
        began_at, events, has_end = trio.current_time(), list[bytes](), False
        try:
            async with client.stream(
                "POST", url, json=body, headers=head(token)
            ) as got:
                if not got.is_success:
                    text = (await got.aread()).decode(errors="replace")
                    raise RefusedError(f"{got.status_code} {text}")
                async for line in got.aiter_lines():
                    if line.startswith("data: {"):
                        if not events:
                            self.tally.first_s.append(trio.current_time() - began_at)
                        events.append(line.removeprefix("data: ").encode())
                    # read to the end: a generator that is left is told as a warning
                    has_end = has_end or line == "data: [DONE]"
        except httpx2.HTTPError as error:
            kind = BegunError if events else RefusedError
            raise kind(repr(error)) from error
        if not has_end:
            raise BegunError(f"it has no end: {events[-1:]}")
        return self._answer(events)

    def _answer(self, events: Sequence[bytes]) -> tuple[str, str]:
        said, answer_id = "", ""
        for event in events:
            fields = msgspec.json.decode(event)
            if "error" in fields:
                raise BegunError(str(fields["error"]))
            answer_id = fields["id"]
            for choice in fields["choices"]:
                said += choice["delta"].get("content") or ""
            if usage := fields.get("usage"):
                details = usage.get("prompt_tokens_details") or {}
                self.tally.cached.append(details.get("cached_tokens", 0))
        return said, answer_id.removeprefix("chatcmpl-")


def places(fleet: BridgeFleet) -> Mapping[str, int]:
    """Tell from the logs of the bridges which member gave each answer."""
    found: dict[str, int] = {}
    for index, daemon in enumerate(fleet.daemons):
        for path in daemon.scratch.glob("bridge-*.stderr"):
            for line in path.read_bytes().splitlines():
                if b"chat/completions" in line and line.endswith(b"}"):
                    fields = msgspec.json.decode(line)
                    found[fields["request_id"].removeprefix("req_")] = index
    return found


def count_places(tally: Tally, where: Mapping[str, int]) -> tuple[int, int]:
    """Count later turns on the member of the turn before, and on another one."""
    stayed = moved = 0
    for ids in tally.ids.values():
        members = [where.get(each) for each in ids]
        for before, after in pairwise(members):
            stayed += before == after
            moved += before != after
    return stayed, moved
