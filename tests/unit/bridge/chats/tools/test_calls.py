"""Tools of an answer: how they are named and told, and when they are called."""

from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
import trio
from msgspec.structs import replace

from inferd.bridge.chats.question import PartialAnswer
from inferd.bridge.chats.running import RunningAnswer
from inferd.bridge.chats.tools import servers as servers_module
from inferd.bridge.chats.tools.offer import (
    OfferedTool,
    ToolFaultError,
    cut_result,
    offered,
)
from inferd.bridge.chats.tools.rounds import ToolRounds, tools_of
from inferd.bridge.chats.tools.servers import AnswerTools, ToolServers
from inferd.bridge.chats.tools.session import ToolSession
from inferd.chats.records import KeptMessage, MessageDetails, StoredCall
from inferd.config.tools import (
    MAX_RESULT_CHARS,
    MAX_ROUND_CALLS,
    MAX_TOOL_ROUNDS,
    MAX_TOOLS_BYTES,
    TOOL_CONFIRM_S,
    TOOL_IDLE_S,
    ToolServerSettings,
)
from inferd.fair_limiter import FairLimiter
from inferd.tool_host.messages import (
    LINES,
    HostFault,
    ListedTool,
    ToolListing,
    ToolOutcome,
)
from inferd.wire.responses import BlockFrame, TextDelta, ToolCall
from tests.cases import each_case

ADD = ListedTool("add", "Adds.", {"type": "object"})
SERVER = ToolServerSettings(name="maths", command=("/bin/true",), allowed=("free",))
ANSWER = KeptMessage(
    id="a" * 32,
    chat_id="c" * 32,
    parent_id="p" * 32,
    role="assistant",
    state="in_progress",
    created_us=0,
)


@each_case(
    ("listed", "words"),
    [
        ([ADD, ADD], "'add', twice"),
        ([ListedTool("a b", "", {})], "'a b'"),
        ([ListedTool("\x1b[2J", "", {})], r"'\\\\x1b\[2J'"),
        ([ListedTool("x" * 41, "", {})], "xxx"),
        ([ListedTool("x", "y" * MAX_TOOLS_BYTES, {})], "over 65536 bytes"),
    ],
)
def test_a_list_that_no_model_can_be_told_is_refused_with_the_server(listed, words):
    with pytest.raises(ToolFaultError, match=f"tool server maths: .*{words}"):
        offered(SERVER, listed)


def test_a_tool_has_the_name_of_its_server_and_asks_unless_it_is_allowed():
    [tool] = offered(SERVER, [ADD])
    definition = tool.definition()
    assert (definition.name, definition.description) == ("maths__add", "Adds.")
    assert bytes(definition.input_schema) == b'{"type":"object"}'
    assert not tool.is_allowed
    assert OfferedTool(SERVER, replace(ADD, name="free")).is_allowed
    assert OfferedTool(replace(SERVER, allowed=("*",)), ADD).is_allowed


def test_a_result_is_cut_and_says_so():
    assert cut_result("sum\0", 100) == "sum\ufffd"
    assert cut_result("x" * 10, 4) == "xxxx\n[cut: 6 characters more]"
    long = cut_result("x" * (MAX_RESULT_CHARS + 1), 10**9)
    assert long.endswith("[cut: 1 characters more]")
    assert cut_result("xyz", -2) == "\n[cut: 3 characters more]"


def called(*names, state="waiting", round_=0, start=1, at=0):
    return [
        StoredCall(f"call{number}", name, {"a": 1}, at, round_, state)
        for number, name in enumerate(names, start)
    ]


def test_a_further_round_goes_on_where_the_answer_was():
    first = [replace(called("maths__add", at=2)[0], result="sum 1", state="done")]
    before = replace(ANSWER, text="A.", details=MessageDetails(calls=first))
    answer = PartialAnswer(before, {"maths__add": "running"})
    for block in (
        TextDelta("B."),
        ToolCall("call2", "maths__add", {}),
        ToolCall("call1", "other", {}),
        ToolCall("call1-4", "other", {}),
        ToolCall("call1", "other", {}),
    ):
        list(answer.add(BlockFrame(id="r", block=block)))
    message = answer.applied_to(before)
    assert message.text == "A.B."
    found = [(each.at, each.round, each.state) for each in message.details.calls]
    assert found == [(2, 0, "done"), (4, 1, "running"), *[(4, 1, "told")] * 3]
    ids = [each.id for each in message.details.calls]
    assert ids[:3] == ["call1", "call2", "call1-2"]
    assert len({*ids}) == len(ids)  # what was allowed is one of them


class Store:
    """The decisions of a user, by calls."""

    def __init__(self, decisions):
        self.decisions = decisions
        self.n_asked = 0

    async def run(self, operation):
        self.n_asked += 1
        cells = dict(
            zip(operation.__code__.co_freevars, operation.__closure__, strict=True)
        )
        return self.decisions.get(cells["call"].cell_contents.id)


class Servers:
    """Answers of tools."""

    def __init__(self, answers):
        self.answers = answers
        self.called = []
        self.ended_at = []

    async def end_servers(self):
        self.ended_at.append(trio.current_time())

    async def call(self, tool, arguments):
        self.called.append((tool.name, arguments))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def rounds_of(calls, decisions=None, answers=()):
    details = MessageDetails(calls=calls)
    running = RunningAnswer("ada", replace(ANSWER, details=details))
    tools = {
        each.name: each for each in offered(SERVER, [ADD, replace(ADD, name="free")])
    }
    servers = Servers(list(answers))
    return running, servers, ToolRounds(Store(decisions or {}), running, tools, servers)


def ends(running):
    return [(each.state, each.result) for each in running.message.details.calls]


async def test_calls_are_made_once_their_user_allows_them(autojump_clock):
    calls = called("maths__add", "maths__add", "maths__add")
    answers = [
        ToolOutcome("sum 1", is_error=False),
        ToolFaultError("maths", "it has ended"),
    ]
    running, servers, rounds = rounds_of(
        calls, {"call1": True, "call2": False, "call3": True}, answers
    )
    offer = rounds.offer()
    assert offer.states == {"maths__add": "waiting", "maths__free": "running"}
    assert await rounds.run_calls()
    assert ends(running) == [
        ("done", "sum 1"),
        ("denied", "The user did not allow this call."),
        ("failed", "the tool server maths: it has ended"),
    ]
    assert servers.called == [("maths__add", {"a": 1})] * 2
    assert not await rounds.run_calls()


async def test_silence_denies_a_call(autojump_clock):
    running, servers, rounds = rounds_of(called("maths__add"))
    began = trio.current_time()
    assert await rounds.run_calls()
    assert trio.current_time() - began == pytest.approx(TOOL_CONFIRM_S)
    assert ends(running)[0][0] == "denied"
    assert servers.called == []
    assert servers.ended_at[0] - began == pytest.approx(TOOL_IDLE_S, abs=1)


async def test_rounds_and_calls_are_bounded_and_the_model_must_answer_then(
    autojump_clock,
):
    names = ["maths__free"] * (MAX_ROUND_CALLS + 2)
    outcomes = [ToolOutcome("x" * 60_000, is_error=True)] * MAX_ROUND_CALLS
    running, servers, rounds = rounds_of(called(*names, state="running"), {}, outcomes)
    assert await rounds.run_calls()
    states = [state for state, _ in ends(running)]
    assert states == ["failed"] * MAX_ROUND_CALLS + ["denied"] * 2
    assert sum(len(result) for _, result in ends(running)) < 270_000
    for _ in range(MAX_TOOL_ROUNDS - 1):
        assert rounds.offer().may_call
        await rounds.run_calls()
    assert not rounds.offer().may_call
    assert len(servers.called) == MAX_ROUND_CALLS


class Pipe:
    """What a process says, a part at a time, and what it is told."""

    def __init__(self, *parts):
        self.parts = list(parts)
        self.sent = b""

    async def receive_some(self):
        if not self.parts:
            await trio.sleep_forever()
        return self.parts.pop(0)

    async def send_all(self, data):
        self.sent += data


N_CALLS_OF_EACH = 2
HOUR_S = 3600.0
RESULT = LINES.encode(ToolOutcome("sum 3", is_error=False)) + b"\n"
LISTING = LINES.encode(ToolListing([ADD])) + b"\n"


@each_case(
    ("said", "words"),
    [
        ((b"",), "has ended"),
        ((b"no JSON\n",), "sent something else"),
        ((b"x" * 2**23, b"y"), "sent too much"),
        ((LINES.encode(HostFault("it lies")) + b"\n",), "it lies"),
        (
            (LINES.encode(ToolOutcome("x", is_error=False)) + b"\n",),
            "before it was asked",
        ),
        ((), "takes over 30 s to start"),
    ],
)
async def test_a_server_that_does_not_begin_as_it_should_is_one_failure(
    said, words, autojump_clock
):
    session = ToolSession(SERVER, Pipe(), Pipe(*said))
    with pytest.raises(ToolFaultError, match=f"tool server maths: .*{words}"):
        await session.start()


async def test_a_call_is_answered_in_time_or_not_at_all(autojump_clock):
    asked = Pipe()
    session = ToolSession(SERVER, asked, Pipe(LISTING[:9], LISTING[9:] + RESULT))
    await session.start()
    assert session.tools == [ADD]
    assert (await session.call("add", {"a": 1})).text == "sum 3"
    assert msgspec.json.decode(asked.sent)["arguments"] == {"a": 1}
    with pytest.raises(ToolFaultError, match="takes over 60 s"):
        await session.call("add", {})


async def test_a_server_that_failed_is_not_asked_again_in_an_answer(monkeypatch):
    tool = OfferedTool(SERVER, ADD)
    async with AsyncExitStack() as stack:
        tools = AnswerTools(FairLimiter(1), stack, "ada")
        assert (await tools.call(tool, [])).is_error
        session = ToolSession(SERVER, Pipe(), Pipe(LISTING))
        await session.start()
        tools._sessions["maths"] = session
        changed = OfferedTool(SERVER, replace(ADD, description="Adds, and more."))
        for _ in range(2):
            with pytest.raises(ToolFaultError, match="no longer offers add as it was"):
                await tools.call(changed, {})


async def test_answers_with_two_servers_each_do_not_wait_for_one_another(
    monkeypatch, autojump_clock
):
    @asynccontextmanager
    async def started(server):
        session = ToolSession(
            server, Pipe(), Pipe(LISTING, *[RESULT] * N_CALLS_OF_EACH)
        )
        await session.start()
        yield session

    monkeypatch.setattr(servers_module, "tool_session", started)
    limiter = FairLimiter(2)
    both = [OfferedTool(replace(SERVER, name=name), ADD) for name in "ab"]

    async def answer(user):
        async with AsyncExitStack() as stack:
            tools = AnswerTools(limiter, stack, user)
            for tool in both * N_CALLS_OF_EACH:
                await tools.call(tool, {})
                await trio.sleep(1)

    with trio.fail_after(HOUR_S):
        async with trio.open_nursery() as nursery:
            for user in ("ada", "ada", "eve"):
                nursery.start_soon(answer, user)
    assert limiter.n_active == 0


async def test_servers_that_fail_are_told_and_the_others_offered():
    servers = ToolServers(
        [
            replace(SERVER, command=("/absent",)),
            replace(SERVER, name="b", by_default=False),
        ]
    )
    assert servers.chosen(None) == ["maths"]
    assert servers.chosen(["b", "gone"]) == ["b"]
    assert await tools_of(servers, []) == ({}, [])
