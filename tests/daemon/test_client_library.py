"""The client library against a real daemon: threads, trio and asyncio."""

import io
import re
import signal
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from msgspec import Struct

from inferd.client import (
    AsyncClient,
    BackendUnavailable,
    Client,
    ClientError,
    ConnectionLostError,
    InvalidRequest,
    ModelNotFound,
    NoDaemonError,
    QueueFull,
    RequestTimeout,
    TextEvent,
    ToolError,
    ToolLoopExceeded,
)
from inferd.client.core.bridge_calls import wav_of
from tests.daemon.bridge import BridgeProcess, bridge_to
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, MakeDaemon, eventually, generate, mock
from tests.documents.pages import texts
from tests.fakes.remote_engine import DONE, HEAD, chunk, sends, serving

pytestmark = pytest.mark.slow

CALL: Final = (
    '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
)
ROOT: Final = Path(__file__).parents[2]
SECOND: Final = array("f", [0.0] * 16_000).tobytes()
SLOW: Final = {"tokens": ["word "] * 10_000, "token_delay_ms": 20}
"""An answer of some minutes: tests end it."""
LOOPS: Final = ("trio", "asyncio")
SAID: Final = "Hello wörld!"
PRINTED: Final = (
    f"{SAID} end_turn 4\n",
    f"{SAID}Timing\\(.*\\)\n",
    f"{SAID}\n{SAID}\n",
    "ready: ready\n",
    "(word ){5,}cancelled\n",
    f"mock {SAID}\n.*person .*slow (word ){{20}}\n",
    "0 tokens are read\n0 were read, 4 written\n",
    "Person\\(name='Ada', age=36\\)\n",
    f"{SAID} 1\n",
    "(\\S+ a [a-z ]+\n){2}",
    "\\S+ a red fox\n\\S+ a b[a-z ]+\n",
    "(\\d+ \\d+ \\S+ ?\n)+",
    f"(\\d+ \\S+ ?\n)+{SAID}\n",
    SAID,
    f"{SAID}\n",
    f"{SAID}\n",
)
"""What the programs of the first page print, as patterns."""


class Person(Struct):
    name: str
    age: int


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with serving() as engine, daemons() as make:
        said = chunk('{"name": "Ada", ') + chunk('"age": 36}') + chunk(reason="stop")
        engine.script = sends(HEAD + said + DONE)
        far = {"name": "person", "kind": "openai", "base_url": engine.url, "model": "m"}
        backends = [
            mock(tokens=["Hel", "lo ", "wörld", "!"], transcribe=True, audio=True),
            {**far, "structure": True, "route_unnamed": True},
            mock(name="caller", tokens=["Let me see. ", CALL]),
            mock(name="slow", **SLOW),
        ]
        config = {"backend": backends, "admission": {"max_active": 8}}
        yield make(config).start()


@pytest.fixture(scope="module")
def bridge(daemon: DaemonProcess) -> Iterator[BridgeProcess]:
    with bridge_to(daemon) as bridge:
        yield bridge


@pytest.fixture(params=["sockets", "bridge"])
def place(
    request: pytest.FixtureRequest, daemon: DaemonProcess, bridge: BridgeProcess
) -> dict[str, Any]:
    """How a client is told where to ask."""
    if request.param == "sockets":
        return {"path": daemon.directory}
    return {"url": bridge.address}


@pytest.fixture
def client(place: dict[str, Any]) -> Iterator[Client]:
    with Client(**place) as client:
        yield client


def on_each_loop(program: Callable[[], Awaitable[None]]) -> None:
    """Run a program under trio and under asyncio."""
    for loop in LOOPS:
        anyio.run(program, backend=loop)


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a + b


# --- calls --------------------------------------------------------------------------------


def test_each_call_from_threads(client: Client):
    client.wait_ready()
    assert client.status().is_ready
    facts = {each.name: each for each in client.models()}
    assert [*facts] == ["mock", "person", "caller", "slow"]
    assert {"generate", "embed", "rerank", "transcribe"} <= facts["mock"].can
    answer = client.chat("hi", max_tokens=3)
    assert (answer.text, answer.stop_reason) == ("Hello wörld", "max_tokens")
    assert answer.usage.output_tokens == 3
    with client.stream([{"role": "user", "content": "hi"}]) as stream:
        assert [*stream] == ["Hel", "lo ", "wörld", "!"]
        assert stream.final().text == "Hello wörld!"
    assert client.count_tokens("hi") == 0
    assert client.parse(Person, "who", model="person") == Person("Ada", 36)
    texts = [f"text {number}" for number in range(700)]
    vectors = client.embed(texts)
    assert len(vectors.vectors) == 700  # in several requests
    assert vectors.vectors[699] == client.embed("text 699").vectors[0]
    assert vectors.numpy().shape == (700, 8)
    ranked = client.rerank("red fox", ["nothing", "a red fox", "red"], top_n=2)
    assert [each.document for each in ranked.results] == ["a red fox", "red"]


@pytest.fixture
def run_snippet(
    daemon: DaemonProcess,
    bridge: BridgeProcess,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[str], str]:
    """Run a program of the documentation where its files are; return what it prints."""
    monkeypatch.setattr(
        "inferd.client.discovery.client_directories", lambda: [daemon.directory]
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "speech.wav").write_bytes(wav_of(SECOND))

    def run(snippet: str) -> str:
        recorded = io.TextIOWrapper(io.BytesIO(SECOND + SECOND[:4000]))
        monkeypatch.setattr("sys.stdin", recorded)
        program = snippet.replace("http://127.0.0.1:8313", bridge.address)
        exec(compile(program, snippet, "exec"), {"__name__": "snippet"})  # noqa: S102  # ours
        return capsys.readouterr().out

    return run


def test_the_programs_of_the_first_page_do_what_they_say(
    run_snippet: Callable[[str], str],
):
    snippets = texts("docs/python.md", "python")
    text = (ROOT / "docs" / "python.md").read_text()
    told = re.findall(r"^\| \[(.*)\]\(#.*\) \| (\d+) \|$", text, re.MULTILINE)
    lines = [sum(bool(line) for line in each.splitlines()) for each in snippets]
    assert [int(number) for _, number in told] == lines
    slow = 'stream("Write a long story."'
    snippets = [each.replace(slow, f'{slow}, model="slow"') for each in snippets]
    types = "Who wrote the first program? Guess her age."
    snippets = [
        each.replace(f'"{types}"', f'"{types}", model="person"') for each in snippets
    ]
    printed = [run_snippet(each) for each in snippets]
    for (name, _), output, expected in zip(told, printed, PRINTED, strict=True):
        assert re.fullmatch(expected, output, re.DOTALL), (name, output)


def test_the_snippets_with_callbacks_run(run_snippet: Callable[[str], str]):
    snippets = texts("docs/python-callbacks.md", "python")
    assert len(snippets) == 2
    for snippet in snippets:
        run_snippet(snippet)


async def _each_call(place: dict[str, Any]) -> None:
    async with AsyncClient(**place) as client:
        await client.wait_ready()
        assert (await client.status()).is_ready
        assert len(await client.models()) == 4
        answer = await client.chat("hi", max_tokens=3)
        assert (answer.text, answer.stop_reason) == ("Hello wörld", "max_tokens")
        async with client.stream("hi") as stream:
            assert [text async for text in stream] == ["Hel", "lo ", "wörld", "!"]
            assert (await stream.final()).text == "Hello wörld!"
        assert await client.count_tokens("hi") == 0
        person = await client.parse(Person, "who", model="person")
        assert person == Person("Ada", 36)
        assert len((await client.embed(["a", "b"])).vectors) == 2
        ranked = await client.rerank("red fox", ["nothing", "a red fox"])
        assert ranked.results[0].document == "a red fox"


def test_each_call_from_tasks(place: dict[str, Any]):
    on_each_loop(lambda: _each_call(place))


def test_tools_are_called_and_the_loop_has_bounds(
    place: dict[str, Any], client: Client
):
    called: list[int] = []

    def refusing(a: int, b: int) -> int:
        called.append(a + b)
        raise ToolError("no more")

    with pytest.raises(ToolLoopExceeded) as exceeded:
        client.run_tools("2 + 3?", [add], model="caller", max_turns=2)
    # of each turn: the answer with its call, and the result
    assert [each.role for each in exceeded.value.messages] == [
        *("user", "assistant", "user", "assistant", "user"),
    ]
    assert '"5"' in repr(exceeded.value.messages[2]) or "'5'" in repr(
        exceeded.value.messages[2]
    )
    refusing.__name__ = "add"
    with pytest.raises(ToolLoopExceeded):
        client.run_tools("2 + 3?", [refusing], model="caller", max_turns=1)
    assert called == [5]
    asked = client.stream("2 + 3?", model="caller", tools=[])
    assert [type(each) for each in asked.events()] == [TextEvent, TextEvent]
    run = client.run_tools("hi", [add])
    assert (run.answer.text, run.n_turns) == ("Hello wörld!", 1)

    async def program() -> None:
        async def slow_add(a: int, b: int) -> int:
            await anyio.lowlevel.checkpoint()
            return a + b

        slow_add.__name__ = "add"
        async with AsyncClient(**place) as other:
            for tools in ([slow_add], [add]):
                with pytest.raises(ToolLoopExceeded) as exceeded:
                    await other.run_tools("?", tools, model="caller", max_turns=1)
                assert "5" in repr(exceeded.value.messages[2])

    on_each_loop(program)


def test_speech_is_transcribed_from_blocks_of_samples(
    place: dict[str, Any], client: Client
):
    segments: list[str] = []
    partial: list[str] = []

    def spoken() -> Iterator[bytes]:
        yield SECOND
        while not partial:  # an empty block has the client look at what has come
            yield b""
        yield SECOND[:8000]
        yield SECOND[8000:]

    found = client.transcribe(
        spoken(),
        on_segment=lambda each: segments.append(each.text),
        on_partial=partial.append,
    )
    assert [each.text for each in found.segments] == segments
    assert segments == ["Hel", "lo ", "wörld", "!"]

    with pytest.raises(InvalidRequest):
        client.transcribe(iter([b"odd"]))

    async def live(is_told: anyio.Event) -> AsyncIterator[bytes]:
        yield SECOND
        await is_told.wait()
        yield SECOND

    async def program() -> None:
        async with AsyncClient(**place) as other:
            is_told = anyio.Event()
            for recording in (live(is_told), [SECOND, b"", SECOND]):
                heard = await other.transcribe(
                    recording, on_partial=lambda _: is_told.set()
                )
                assert [each.text for each in heard.segments] == segments
            with pytest.raises(InvalidRequest):
                await other.transcribe([b"odd"])
            assert (await other.chat("hi")).text == "Hello wörld!"

    on_each_loop(program)


# --- ends ---------------------------------------------------------------------------------


def test_refusals_are_typed_and_say_what_can_be_done(client: Client):
    with pytest.raises(ModelNotFound) as missing:
        client.chat("hi", model="other")
    assert "mock" in missing.value.models
    with pytest.raises(InvalidRequest, match="temperature"):
        client.chat("hi", temperature=9.0)
    with pytest.raises(TypeError):
        client.chat("hi", temprature=1.0)  # type: ignore[call-arg]
    with pytest.raises(NoDaemonError):
        Client("/nowhere").chat("hi")
    for number in ({"max_connections": 0}, {"timeout": 0.0}, {"max_retries": -1}):
        with pytest.raises(ValueError, match="must be"):
            Client(**number)


def test_leaving_a_stream_cancels_its_request(daemon: DaemonProcess, client: Client):
    with client.stream("hi", model="slow") as stream:
        assert next(iter(stream)) == "word "
    with pytest.raises(ClientError, match="before the answer's end"):
        stream.final()
    assert daemon.logged(msg="v2_request_abandoned", backend="slow")
    other = client.stream("hi", model="slow")
    parts = iter(other)
    assert next(parts) == "word "
    assert other.cancel()
    assert other.final().stop_reason == "cancelled"
    assert not other.cancel()
    assert client.chat("hi").text == "Hello wörld!"


def test_a_cancelled_task_has_cancelled_its_request(place: dict[str, Any]):
    async def program() -> None:
        async with AsyncClient(**place, max_connections=1) as client:
            for _ in range(3):
                with anyio.move_on_after(0.05) as scope:
                    await client.chat("hi", model="slow")
                assert scope.cancelled_caught
            assert (await client.chat("hi")).text == "Hello wörld!"

    on_each_loop(program)


def test_nothing_for_so_long_is_a_timeout(make_daemon: MakeDaemon):
    silent = mock(name="silent", prepare_delay_ms=600_000)
    daemon = make_daemon({"backend": [mock(), silent]}).start()
    with Client(daemon.directory, timeout=0.1) as client:
        with pytest.raises(RequestTimeout):
            client.chat("hi", model="silent")

    async def program() -> None:
        async with AsyncClient(daemon.directory, timeout=0.1) as client:
            with pytest.raises(RequestTimeout):
                await client.chat("hi", model="silent")

    on_each_loop(program)
    assert daemon.ask()[-1]["type"] == "done"


def test_threads_share_a_client_and_its_bound_of_connections(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock(tokens=["Hello"])]}).start()
    with (
        Client(daemon.directory, max_connections=3) as client,
        ThreadPoolExecutor(16) as threads,
    ):
        answers = [*threads.map(lambda _: client.chat("hi").text, range(64))]
    assert answers == ["Hello"] * 64
    assert 1 <= len(daemon.logged(msg="v2_connection_accepted")) <= 3


def test_a_refused_request_is_sent_again_and_then_told(make_daemon: MakeDaemon):
    limits = {"max_active": 1, "max_queued": 1}
    backends = [mock(**SLOW)]
    daemon = make_daemon({"backend": backends, "admission": limits}).start()
    with (
        Client(daemon.directory, max_retries=1) as client,
        daemon.begin("running"),
        daemon.connect() as waits,
    ):
        waits.send(generate(id="waits"))
        daemon.catch_up()
        with pytest.raises(QueueFull) as full:
            client.chat("hi")
        assert full.value.queue_depth == 1
        assert eventually(lambda: len(daemon.logged(msg="v2_request_refused")) == 2)


def test_a_daemon_that_dies_ends_calls_and_serves_again_when_it_is_back(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": [mock(**SLOW)]}).start()
    client = Client(daemon.directory)
    stream = client.stream("hi")
    parts = iter(stream)
    assert next(parts) == "word "
    daemon.kill_worker()
    with pytest.raises(BackendUnavailable):
        stream.final()
    assert stream.text.startswith("word ")
    client.wait_ready()
    assert client.chat("hi", max_tokens=2).text == "word word "
    stream = client.stream("hi")
    parts = iter(stream)
    assert next(parts) == "word "
    daemon.stop(signal.SIGKILL)
    with pytest.raises(ClientError):
        stream.final()
    with pytest.raises((NoDaemonError, ConnectionLostError)):
        client.chat("hi")
    daemon.start()
    client.wait_ready()
    assert client.chat("hi", max_tokens=2).text == "word word "
    client.close()
    with pytest.raises(ClientError, match="closed"):
        client.chat("hi")
