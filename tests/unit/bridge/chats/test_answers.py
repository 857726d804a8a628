"""Answers as they are generated, with a real database and a daemon that says what it is told to."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import count
from typing import Any

import msgspec
import pytest
import trio
from msgspec.structs import replace

from inferd.bridge.chats.answers import ChatAnswers
from inferd.bridge.chats.api import CHATS_API
from inferd.bridge.chats.content_filter import ContentFilter
from inferd.bridge.chats.handlers import ChatHandlers
from inferd.bridge.chats.hosted import HostedRequest
from inferd.bridge.chats.parts import AnswerParts
from inferd.bridge.chats.tools.offer import offered
from inferd.bridge.chats.tools.servers import ToolServers
from inferd.bridge.identity.caller import HttpCaller
from inferd.chats.failures import ChatError, ChatFault
from inferd.chats.records import KeptChat, OwnSettings
from inferd.chats.storage import chats, messages
from inferd.chats.storage.database import ChatDatabase, place_of_database
from inferd.config.chats import ChatsSettings
from inferd.config.filters import FilterSettings
from inferd.config.tools import ToolServerSettings
from inferd.limits.bridge import LAST_WRITES_S
from inferd.tool_host.messages import ListedTool
from inferd.wire.responses import BlockFrame, TextDelta, ToolCall

OPERATIONS = {each.action: each for each in CHATS_API.hosted}
CALLER = HttpCaller("ada", ())
NUMBERS = count(1)
HOUR_S = 3600.0
MOST_FAILED = 2000
"""Times that a broken store is tried by these tests, and some more."""
SERVER = ToolServerSettings(name="maths", command=("/bin/true",))
FILTER = FilterSettings(command=("/bin/true",))


class Store:
    """A store without threads, which the clock of these tests would not wait for."""

    runner = "r"

    def __init__(self, database):
        self.database = database
        self.is_broken = False
        self.n_failed = 0

    async def run(self, operation):
        await trio.lowlevel.checkpoint()
        if self.is_broken:
            self.n_failed += 1
            assert self.n_failed < MOST_FAILED, "it is tried without an end"
            raise ChatError(ChatFault.GONE, "the database is gone")
        return self.database.run(operation)


class Daemon:
    """A daemon that answers each question with the same blocks."""

    def __init__(self):
        self.blocks = [TextDelta("w "), TextDelta("w ")]
        self.asked = []
        self.at_end: Callable[[], None] = lambda: None

    async def ask(self, question, _):
        self.asked.append(question.request)
        yield [BlockFrame(id="r", block=block) for block in self.blocks]
        self.at_end()

    async def models(self):
        return []


class Log:
    def write(self, *_, **__):
        pass


class Callers:
    def spending(self, *_):
        return nullcontext()


class Tools(ToolServers):
    """A server with a tool, which is not started."""

    async def listed(self, name):
        return offered(SERVER, [ListedTool("add", "Adds.", {"type": "object"})])


class Filter:
    """A filter that refuses texts with guns, and fails while it is out of order."""

    def __init__(self):
        self.read = []
        self.is_out_of_order = False

    async def __call__(self, _, asked):
        self.read.append(json.loads(asked)["text"])
        if self.is_out_of_order:
            return b""
        verdict = "refuse" if "gun" in self.read[-1] else "pass"
        return json.dumps({"verdict": verdict}).encode()


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    made = ChatDatabase(place_of_database(None, tmp_path_factory.mktemp("chats")))
    yield made
    made.close()


class Chat:
    """A chat, and what its answers are generated with."""

    def __init__(self, database, **parts):
        settings = ChatsSettings(answer_s=4, max_pending=100)
        made: dict[str, Any] = {
            "store": Store(database),
            "daemon": Daemon(),
            "callers": Callers(),
            "log": Log(),
            **parts,
        }
        self.store, self.daemon = made["store"], made["daemon"]
        self.answers = ChatAnswers(
            AnswerParts(settings=settings, default_max_tokens=100, **made)
        )
        self.handlers = ChatHandlers(self.store, settings)
        kept = KeptChat(
            id=f"{next(NUMBERS):032x}",
            owner="ada",
            created_us=0,
            modified_us=0,
            settings=OwnSettings(system_prompt="Be brief."),
        )
        self.id = database.run(lambda each: chats.create_chat(each, kept, 100)).id

    def request(self, action, **fields):
        body = msgspec.json.encode(fields)
        return HostedRequest(OPERATIONS[action], "ada", {"chat_id": self.id}, b"", body)

    async def add(self, text, parent=None):
        fields = {"parent_id": parent and parent.id, "content": text}
        new = await self.handlers.create_both(
            self.request("create_both", model_config_name="chat", **fields)
        )
        return new.message

    async def ask(self, text, parent=None):
        """Return an answer as it has ended."""
        message = await self.add(text, parent)
        with trio.fail_after(HOUR_S):
            async with trio.open_nursery() as nursery:
                self.answers.begin(nursery, CALLER, message)
                [running] = filter(None, [self.answers.find(message.id)])
        assert self.answers.n_running == 0
        assert running.message == self.stored(message)
        return running.message

    def stored(self, message):
        return self.store.database.run(
            lambda each: messages.read_message(each, "ada", self.id, message.id)
        )

    def read(self):
        """Return what the daemon was asked with last."""
        return [
            (message.role, [block.text for block in message.content])
            for message in self.daemon.asked[-1].messages
        ]


async def test_an_answer_has_the_instructions_of_its_chat(database, autojump_clock):
    chat = Chat(database)
    answer = await chat.ask("hello")
    assert (answer.state, answer.text) == ("complete", "w w ")
    assert chat.read() == [("system", ["Be brief."]), ("user", ["hello"])]
    assert answer.details.work.system_prompt == "Be brief."


async def test_a_request_that_is_repeated_cancels_no_newer_answer(database):
    chat = Chat(database)
    prompt = (await chat.add("hello")).parent_id
    asked = [
        chat.request(
            "create_answer",
            id=f"{next(NUMBERS):032x}",
            parent_id=prompt,
            model_config_name="chat",
        )
        for _ in range(2)
    ]
    first, second, again = [
        await chat.handlers.create_answer(each) for each in (*asked, asked[0])
    ]
    assert list(second.cancelled) == [first.message.id]
    assert (again.is_new, again.cancelled) == (False, ())
    assert chat.stored(second.message).state == "pending"


async def test_a_stop_that_meets_the_end_of_an_answer_keeps_its_text(
    database, autojump_clock
):
    chat = Chat(database)
    message = await chat.add("hello")
    stop = partial(
        messages.stop_message, owner="ada", chat_id=chat.id, message_id=message.id
    )
    chat.daemon.at_end = partial(database.run, stop)
    async with trio.open_nursery() as nursery:
        chat.answers.begin(nursery, CALLER, message)
        [running] = filter(None, [chat.answers.find(message.id)])
    assert (running.message.state, running.message.text) == ("cancelled", "w w ")
    assert chat.stored(message) == running.message


async def test_a_bridge_ends_while_its_database_cannot_be_used(
    database, autojump_clock
):
    chat = Chat(database)
    message = await chat.add("hello")
    with trio.fail_after(HOUR_S):
        async with trio.open_nursery() as nursery:
            chat.answers.begin(nursery, CALLER, message)
            chat.store.is_broken = True
            await trio.sleep(HOUR_S / 2)  # it is tried again until the bridge ends
            assert chat.answers.n_running == 1
            chat.answers.end()
            ends_at = trio.current_time() + LAST_WRITES_S
            nursery.cancel_scope.cancel()
    assert trio.current_time() == pytest.approx(ends_at)
    assert chat.answers.n_running == 0
    assert chat.stored(message).state == "pending"  # until its next start


async def test_an_answer_ends_after_answer_s_though_a_call_waits(
    database, autojump_clock
):
    chat = Chat(database, tools=Tools([SERVER]))
    chat.daemon.blocks = [TextDelta("w "), ToolCall("call", "maths__add", {})]
    began = trio.current_time()
    answer = await chat.ask("hello")
    assert trio.current_time() - began == pytest.approx(4)
    assert (answer.state, answer.text) == ("timeout", "w ")
    [call] = answer.details.calls
    assert call.state == "waiting"


async def test_what_the_filter_refuses_reaches_no_later_question(
    database, autojump_clock
):
    reads = Filter()
    chat = Chat(database, content_filter=ContentFilter(FILTER, reads))
    first = await chat.ask("hello")
    refused = await chat.ask("a gun", first)
    assert refused.details.failure.code == "content_refused"
    then = await chat.ask("please go on", refused)
    assert then.state == "complete"
    texts = ["hello", "w w ", "please go on"]
    assert [text for _, [text] in chat.read()] == ["Be brief.", *texts]
    assert [each.removeprefix("Be brief.\n\n") for each in reads.read] == [
        "hello",
        "a gun",
        "please go on",
    ]


async def test_what_the_filter_has_not_read_is_read_with_the_next_prompt(
    database, autojump_clock
):
    reads = Filter()
    chat = Chat(database, content_filter=ContentFilter(FILTER, reads))
    stopped = await chat.add("a gun")
    database.run(lambda each: messages.stop_message(each, "ada", chat.id, stopped.id))
    then = await chat.ask("please go on", stopped)
    assert then.details.failure.code == "content_refused"
    assert (await chat.ask("go on!", then)).details.failure.code == "content_refused"
    reads.is_out_of_order = True
    failed = await chat.ask("hello")
    assert failed.details.failure.code == "filter_failed"
    reads.is_out_of_order = False
    assert (await chat.ask("and now?", failed)).state == "complete"
    assert reads.read[-1] == "Be brief.\n\nhello\n\nand now?"
    assert len(chat.daemon.asked) == 1
    passing = replace(FILTER, on_failure="pass")
    chat = Chat(database, content_filter=ContentFilter(passing, reads))
    reads.is_out_of_order = True
    missed = await chat.ask("a gun")
    assert missed.state == "complete"
    reads.is_out_of_order = False
    then = await chat.ask("please go on", missed)
    assert then.details.failure.code == "content_refused"
