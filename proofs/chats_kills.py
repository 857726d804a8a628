"""Fifty people in their chats while the bridge, the database and the daemon are killed."""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

import httpx2

from inferd.bridge.identity.token import TokenRecord, make_token
from inferd.bridge.identity.token_file import changing_tokens
from tests.daemon.bridge import BridgeProcess
from tests.daemon.configuration import mock
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess
from tests.daemon.postgresql import PostgresqlServer, postgresql
from torture.outcome import Context, SkippedError

KEY: Final = "chats-kills"
NAME: Final = (
    "Chats of fifty people, and a bridge, a database and a daemon that are killed"
)

WORDS: Final = tuple(f"word{number} " for number in range(40))
TEXT: Final = "".join(WORDS)
STOPPED_AT: Final = cycle((None, len(TEXT) // 2, len(TEXT) - len(WORDS[-1]), len(TEXT)))
"""Characters of an answer that are read before it is stopped: some meet its end."""
ENDED: Final = frozenset(("complete", "aborted_by_worker", "cancelled", "timeout"))
AGAIN: Final = frozenset((429, 502, 503, 504))
"""Statuses of a request that was refused for a while; it is sent again, with its id."""
PATIENCE_S: Final = 120.0
PAUSE_S: Final = 0.02
MOST_BETWEEN: Final = 12
"""Acknowledged messages between two kills are drawn up to this."""


BUG: Final = '"http_request.failed"'


@dataclass
class Sent:
    """A message that the bridge has acknowledged."""

    id: str
    parent_id: str | None
    text: str
    """Of a prompt; of an answer what was read of it as it was written."""
    is_answer: bool = False
    stopped: Mapping[str, Any] | None = None
    """The answer as its stop told it, where it was stopped."""


@dataclass
class Crowd:
    """What all people share.

    Args:
        address: tells where the bridge is now.
    """

    address: Callable[[], str]
    n_acknowledged: int = 0
    n_again: int = 0
    is_over: bool = False
    wrong: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def acknowledged(self) -> None:
        """Count a message."""
        with self.changed:
            self.n_acknowledged += 1
            self.changed.notify_all()

    def wait_for(self, n_more: int) -> None:
        """Wait until so many more messages are acknowledged."""
        with self.changed:
            wanted = self.n_acknowledged + n_more
            is_so = self.changed.wait_for(
                lambda: self.n_acknowledged >= wanted, PATIENCE_S
            )
        if not is_so:
            raise TimeoutError(f"no {n_more} messages within {PATIENCE_S:g} s")


class Person:
    """Who asks, reads and asks again.

    Args:
        crowd: of which it is one.
        token: by which the bridge knows it.
    """

    def __init__(self, crowd: Crowd, token: str) -> None:
        self._crowd = crowd
        self._http = httpx2.Client(
            headers={"authorization": f"Bearer {token}"}, timeout=10.0
        )
        self.chat = str(self._ask("POST", "/chats", {})["id"])
        self.sent: list[Sent] = []

    def _ask(self, method: str, path: str, fields: Any = None) -> Any:
        """Send a request until the bridge says what became of it."""
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            try:
                url = f"{self._crowd.address()}{path}"
                reply = self._http.request(method, url, json=fields)
            except httpx2.TransportError:
                pass
            else:
                if reply.status_code not in AGAIN:
                    if not reply.is_success:
                        raise ValueError(f"{path}: {reply.status_code} {reply.text}")
                    return reply.json()
            self._crowd.n_again += 1
            time.sleep(PAUSE_S)
        raise TimeoutError(f"{path} was not answered within {PATIENCE_S:g} s")

    def run(self) -> None:
        """Hold a conversation until all is over."""
        parent: str | None = None
        while not self._crowd.is_over:
            prompt = Sent(uuid4().hex, parent, f"prompt {uuid4().hex}")
            self._post("prompter_message", prompt, {"content": prompt.text})
            answer = Sent(uuid4().hex, prompt.id, "", is_answer=True)
            self._post("assistant_message", answer, {"model_config_name": "chat"})
            n_read = next(STOPPED_AT)
            answer.text = "".join(self._follow(answer, n_read))
            if n_read is not None:
                path = f"/chats/{self.chat}/messages/{answer.id}/stop"
                answer.stopped = self._ask("POST", path, {})
            self.await_end(answer)
            parent = answer.id

    def _post(self, route: str, message: Sent, fields: Mapping[str, str]) -> None:
        ids = {"id": message.id, "parent_id": message.parent_id}
        told = self._ask("POST", f"/chats/{self.chat}/{route}", {**ids, **fields})
        if told["id"] != message.id:
            self._crowd.wrong.append(f"{route} has another id")
        self.sent.append(message)
        self._crowd.acknowledged()

    def _follow(self, answer: Sent, n_most: int | None) -> Iterator[str]:
        """Read an answer as it is written, until its end or that of the connection.

        With ``n_most`` no more is read once so many characters were.
        """
        n_read = 0
        path = f"/chats/{self.chat}/messages/{answer.id}/events"
        try:
            with self._http.stream("GET", self._crowd.address() + path) as reply:
                for line in reply.iter_lines():
                    event = line.removeprefix("data: ")
                    if event != line and (text := token_of(event)):
                        yield text
                        n_read += len(text)
                    if n_most is not None and n_read >= n_most:
                        return
        except httpx2.TransportError:
            return

    def await_end(self, answer: Sent) -> None:
        """Wait until an answer has ended."""
        path = f"/chats/{self.chat}/messages/{answer.id}"
        give_up_at = time.monotonic() + PATIENCE_S
        while self._ask("GET", path)["state"] not in ENDED:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"an answer has not ended within {PATIENCE_S:g} s")
            time.sleep(PAUSE_S)

    def check(self, ends: Counter[str]) -> Iterator[str]:
        """Compare what is stored with what was acknowledged; yield what is wrong."""
        stored = self._ask("GET", f"/chats/{self.chat}")["messages"]
        by_id = {each["id"]: each for each in stored}
        if len(by_id) != len(stored):
            yield "an id is stored twice"
        if doubled := stored_twice(stored):
            yield f"{doubled} prompts are stored twice"
        for sent in self.sent:
            if (found := by_id.get(sent.id)) is None:
                yield "an acknowledged message is lost"
                continue
            if found["parent_id"] != sent.parent_id:
                yield "a message follows another one than it did"
            if sent.is_answer:
                ends[found["state"]] += 1
                yield from wrong_answer(found, sent)
            elif (found["state"], found["content"]) != ("manual", sent.text):
                yield f"a prompt is {found['state']}, or has another text"

    def close(self) -> None:
        """Leave."""
        self._http.close()


def token_of(event: str) -> str:
    """Return the text of an event, if it has one."""
    told = json.loads(event)
    return str(told["text"]) if told.get("event_type") == "token" else ""


def stored_twice(stored: list[Any]) -> int:
    """Count the prompts whose text another one has, too."""
    texts = Counter(each["content"] for each in stored if each["role"] == "prompter")
    return sum(count - 1 for count in texts.values())


def wrong_answer(found: Mapping[str, Any], sent: Sent) -> Iterator[str]:
    """Yield what is wrong with an answer that is stored."""
    state, text = found["state"], found["content"]
    if state not in ENDED:
        yield f"an answer is {state} though nothing runs"
    elif state == "complete" and text != TEXT:
        yield "an answer is complete and has not all of its text"
    if not TEXT.startswith(text):
        yield "an answer has a text that no model wrote"
    if not (text.startswith(sent.text) or sent.text.startswith(text)):
        yield "what was read of an answer is no part of it"
    if (told := sent.stopped) is not None:
        if told["state"] != state:
            yield f"a stop was told {told['state']}, and {state} is stored"
        if not told["content"].startswith(text):
            yield "an answer has a text that its stop has not told"


@dataclass
class Services:
    """What is killed."""

    database: PostgresqlServer
    daemon: DaemonProcess
    bridge: BridgeProcess
    address: str
    """Of the bridge that was started last."""
    n_bugs: int = 0
    """Requests that a bridge met a bug in."""

    def kill(self, target: str) -> None:
        """Kill one of them, and start it again."""
        if target == "database":
            self.database.kill()
            self.database.start()
        elif target == "daemon":
            self.daemon.stop(SIGKILL)
            self.daemon.start()
        else:
            self.end()
            self.bridge = BridgeProcess(self.daemon)
            self.address = self.bridge.address

    def end(self) -> None:
        """Kill the bridge."""
        self.bridge.process.kill()
        self.bridge.process.wait()
        self.n_bugs += self.bridge.stderr().count(BUG)


def run(context: Context) -> None:
    """Kill each of them at random moments, and compare what is stored at the end."""
    if os.geteuid() != 0 or not [*Path("/usr/lib/postgresql").glob("*/bin")]:
        raise SkippedError("it takes root and Debian's PostgreSQL")
    n_kills = context.pick(short=6, full=200)
    n_people = context.pick(short=10, full=50)
    with ExitStack() as stack:
        database = stack.enter_context(postgresql())
        make = stack.enter_context(daemons())
        folder = stack.enter_context(TemporaryDirectory())
        tokens = Path(folder) / "tokens.json"
        settings = {
            "backend": [mock(name="chat", tokens=[*WORDS], token_delay_ms=5)],
            "admission": {"max_active": 8, "max_queued": 4 * n_people},
            "chats": {"database": database.url},
            "bridge": {"tokens": str(tokens)},
        }
        daemon = make(settings).start()
        bridge = BridgeProcess(daemon)
        services = Services(database, daemon, bridge, bridge.address)
        stack.callback(services.end)
        crowd = Crowd(lambda: services.address)
        names = [f"person{number}" for number in range(n_people)]
        people = [Person(crowd, token) for token in tokens_for(tokens, names)]
        for person in people:
            stack.callback(person.close)
        hold(context, services, crowd, people, n_kills)
        check(context, crowd, people)
        services.end()
        context.require(not services.n_bugs, f"{services.n_bugs} bugs of the bridge")


def tokens_for(path: Path, names: list[str]) -> list[str]:
    """Make a token for each name."""
    made = {name: make_token(os.urandom(38)) for name in names}
    with changing_tokens(path) as known:
        known += [
            TokenRecord(id=token_id, name=name, sha256=digest)
            for name, (_, token_id, digest) in made.items()
        ]
    return [token for token, _, _ in made.values()]


def hold(
    context: Context,
    services: Services,
    crowd: Crowd,
    people: list[Person],
    n_kills: int,
) -> None:
    """Let all talk while what they talk through is killed."""
    targets = ["bridge", "database", "daemon"] * (n_kills // 3 + 1)
    context.rng.shuffle(targets)
    with ThreadPoolExecutor(len(people)) as threads:
        talks = [threads.submit(person.run) for person in people]
        try:
            for target in targets[:n_kills]:
                crowd.wait_for(context.rng.randint(1, MOST_BETWEEN))
                services.kill(target)
                key = f"{target}_killed"
                context.counts[key] = context.counts.get(key, 0) + 1
        finally:
            crowd.is_over = True
        for talk in talks:
            if error := talk.exception():
                crowd.wrong.append(f"{type(error).__name__}: {error}"[:200])


def check(context: Context, crowd: Crowd, people: list[Person]) -> None:
    """Compare all that is stored with all that was acknowledged."""
    ends: Counter[str] = Counter()
    wrong = Counter(crowd.wrong)
    for person in people:
        wrong.update(person.check(ends))
    context.counts["acknowledged"] = crowd.n_acknowledged
    context.counts["sent_again"] = crowd.n_again
    for state, count in sorted(ends.items()):
        context.counts[f"answers_{state}"] = count
    for text, count in wrong.items():
        context.require(not count, f"{count} times: {text}")
    context.expect(ends["complete"], "no answer was complete")
    context.expect(ends["aborted_by_worker"], "no answer was interrupted")
    context.expect(ends["cancelled"], "no answer was stopped")
