"""The application on virtual time, with a daemon that says what a test tells it."""

import json
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from inferd.bridge.access_log import BridgeLog
from inferd.bridge.http.app import BridgeApp
from inferd.bridge.http.guard import HeadRules
from inferd.bridge.identity.caller import Callers, HttpPeer
from inferd.bridge.identity.quota import DailyQuota
from inferd.bridge.identity.share import SharedLimit
from inferd.bridge.identity.tcp_owner import TcpEnd
from inferd.bridge.identity.token import TokenRecord, make_token
from inferd.bridge.identity.token_file import ApiTokens, changing_tokens
from inferd.bridge.translation.api import OfferedModel
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import DaemonFrame, Question
from inferd.bridge.upstream.own_requests import OwnRequests
from inferd.client.frames import ClientBlocksDone
from inferd.config.bridge import BridgeSettings
from inferd.limits.bridge import FAILED_TOKENS
from inferd.wire.responses import BlockFrame, ProgressFrame, TextDelta, UsageV2

OWN, OTHER = 1000, 1001
SETTINGS = BridgeSettings(
    max_body_bytes=1024,
    max_audio_bytes=2048,
    max_bodies_bytes=4096,
    body_s=60,
    max_connections=6,
)
CHAT = "/v1/chat/completions"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
Step = DaemonFrame | list[DaemonFrame] | BridgeError | float


def text(delta: str) -> BlockFrame:
    return BlockFrame(id="r", block=TextDelta(delta))


def done() -> ClientBlocksDone:
    return ClientBlocksDone(
        id="r", usage=UsageV2(7, 3), stop_reason="end_turn", backend="chat"
    )


class ScriptedDaemon:
    """Follows a script: frames that come alone or together, failures, seconds of silence."""

    n_requests = 0

    def __init__(self, *script: Step) -> None:
        self.places = SharedLimit(4)
        self.own = OwnRequests(None)
        self.script: Sequence[Step] = script
        self.principals: list[str] = []
        self.ended_at: float | None = None

    async def ask(
        self, question: Question, principal: str
    ) -> AsyncGenerator[Sequence[DaemonFrame], None]:
        self.principals.append(principal)
        try:
            for step in self.script:
                if isinstance(step, float):
                    await trio.sleep(step)
                elif isinstance(step, BridgeError):
                    raise step
                else:
                    yield step if isinstance(step, list) else [step]
        finally:
            self.ended_at = trio.current_time()

    async def models(self) -> list[OfferedModel]:
        return [OfferedModel("a/b:c", ("generate",))]

    async def is_up(self) -> bool:
        return bool(self.script)


class Browser:
    """Sends requests to the application as the HTTP server does."""

    def __init__(self, tmp_path: Path, daemon: ScriptedDaemon) -> None:
        self.tokens = tmp_path / "tokens.json"
        self.quota = DailyQuota()
        self.lines: list[bytes] = []
        self.app = BridgeApp(
            daemon,  # type: ignore[arg-type]
            Callers(ApiTokens(self.tokens), OWN, self.quota),
            HeadRules(frozenset({"localhost"}), frozenset({"https://page"})),
            SETTINGS,
            BridgeLog(self.lines.append),
        )

    @property
    def logged(self) -> list[dict[str, Any]]:
        """Its log so far."""
        return [json.loads(line) for line in self.lines]

    def token(self, name: str = "ada", **fields: Any) -> str:
        """Make a token that is valid."""
        made, token_id, digest = make_token(os.urandom(38))
        with changing_tokens(self.tokens) as tokens:
            tokens.append(TokenRecord(id=token_id, name=name, sha256=digest, **fields))
        return made

    async def send(  # noqa: PLR0913  # a request has that many parts
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        uid: int = OWN,
        hangs_up_at: float | None = None,
        body_takes_s: float = 0,
    ) -> "Answer":
        """Send a request; give what came of it."""
        answer = Answer()
        fields = {"host": "localhost", **(headers or {})}
        scope = {
            "type": "http",
            "method": method,
            "path": path.partition("?")[0],
            "query_string": path.partition("?")[2].encode(),
            "headers": [(k.encode(), v.encode()) for k, v in fields.items()],
            "state": {"peer": HttpPeer(uid=uid, client=TcpEnd("::1", 5))},
        }
        is_sent = False

        async def receive() -> dict[str, Any]:
            nonlocal is_sent
            if not is_sent:
                is_sent = True
                await trio.sleep(body_takes_s)
                return {"type": "http.request", "body": body}
            if hangs_up_at is None:
                await trio.sleep_forever()
            else:
                await trio.sleep_until(hangs_up_at)
            return {"type": "http.disconnect"}

        await self.app(scope, receive, answer.take)
        return answer

    async def ask(self, *, uid: int = OWN, key: str = "", **fields: Any) -> "Answer":
        """Ask for a chat completion."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        body = json.dumps({**HI, **fields}).encode()
        return await self.send("POST", CHAT, body, headers=headers, uid=uid)


class Answer:
    """What was sent, and when each part was."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parts: list[tuple[float, bytes]] = []

    async def take(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            assert not self.status
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self.parts.append((trio.current_time(), message["body"]))

    @property
    def body(self) -> bytes:
        return b"".join(part for _, part in self.parts)

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., Browser]:
    return lambda *script: Browser(tmp_path, ScriptedDaemon(*script))


@pytest.fixture
def hello(tmp_path: Path) -> Browser:
    return Browser(tmp_path, ScriptedDaemon(text("Hel"), text("lo"), done()))


@pytest.mark.parametrize(
    ("address", "headers", "refused"),
    [
        (f"{CHAT}?api-version=2024-10-21", {}, ""),
        (f"{CHAT}?strict=1", {}, "strict"),
        (f"{CHAT}?api-version=1&api-version=2", {}, "api-version"),
        ("/v1/messages?beta=true", {}, ""),
        ("/api/chat?x=", {}, "no such field: x"),
        ("/v1/models?after=a%2Fb%3Ac&limit=1", {}, ""),
        ("/v1/models?after=other", {}, "after"),
        ("/v1/models?limit=0", {}, "limit"),
        ("/v1/models?before_id=a", {}, "before_id"),
        ("/v1/models?after=%ff", {}, "UTF-8"),
        ("/v1/models?limit=1000&before_id=a/b:c", {"anthropic-version": "1"}, ""),
        ("/v1/models?limit=", {"anthropic-version": "1"}, "limit"),
        ("/v1/models/a/b:c?after=x", {}, "after"),
        ("/v1/models/a/b:c?beta=true", {"anthropic-version": "1"}, ""),
        ("/health?_=1", {}, ""),
    ],
)
async def test_what_follows_the_path_is_honoured_or_refused(
    hello, autojump_clock, address, headers, refused
):
    if address.startswith(("/v1/models", "/health")):
        answer = await hello.send("GET", address, headers=headers)
    else:
        body = json.dumps({**HI, "model": "m", "max_tokens": 5}).encode()
        answer = await hello.send("POST", address, body, headers=headers)
    assert answer.status == (400 if refused else 200), answer.body
    if refused:
        assert refused in str(answer.error)


async def test_the_routes_are_described_to_anybody(hello, autojump_clock):
    answer = await hello.send("GET", "/openapi.json", uid=OTHER)
    assert (answer.status, json.loads(answer.body)["openapi"]) == (200, "3.1.0")


# --- answers ------------------------------------------------------------------------


async def test_an_answer_is_whole_or_streamed(hello, autojump_clock):
    whole = await hello.ask()
    assert (whole.status, whole.headers["content-type"]) == (200, "application/json")
    assert json.loads(whole.body)["choices"][0]["message"]["content"] == "Hello"
    streamed = await hello.ask(stream=True)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.body.endswith(b"data: [DONE]\n\n")
    for answer in (whole, streamed):
        assert answer.headers["x-request-id"].startswith("req_")
        assert int(answer.headers["openai-processing-ms"]) >= 0
        assert answer.headers["x-ratelimit-limit-requests"] == "2"
        assert answer.headers["x-ratelimit-remaining-requests"] == "1"
        assert "x-inferd-queue-position" not in answer.headers


async def test_who_waited_is_told_the_position_at_first(browse, autojump_clock):
    queued = [ProgressFrame(id="r", status="queued", position=n) for n in (3, 1)]
    for streams in (False, True):
        answer = await browse(*queued, text("x"), done()).ask(stream=streams)
        assert answer.headers["x-inferd-queue-position"] == "3"


async def test_frames_that_come_together_are_one_write(browse, autojump_clock):
    cut = replace(done(), stop_reason="cancelled")
    answer = await browse([text("Hel"), text("lo"), cut]).ask(stream=True)
    events, failure = (part for _, part in answer.parts if part)
    assert events.count(b'"content"') == 3  # the first has the role
    assert b'"code":"cancelled"' in failure


async def test_a_stream_that_waits_begins_after_10_s_and_is_kept_alive(
    browse, autojump_clock
):
    answer = await browse(25.0, text("x"), done()).ask(stream=True)
    assert [at for at, part in answer.parts if part.startswith(b":")] == [10, 20]
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_a_refusal_in_the_first_10_s_has_its_status(browse, autojump_clock):
    full = BridgeError(
        Reason.QUEUE_FULL, "queue full", retry_after_s=1.2, queue_depth=10
    )
    answer = await browse(9.0, full).ask(stream=True)
    assert (answer.status, answer.error["code"]) == (429, "queue_full")
    assert answer.headers["retry-after"] == "2"
    assert answer.headers["x-inferd-queue-depth"] == "10"


@pytest.mark.parametrize("before", [(11.0,), (text("x"),)])
async def test_a_failure_after_the_status_line_is_an_event(
    browse, autojump_clock, before
):
    lost = BridgeError(Reason.UNAVAILABLE, "gone")
    browser = browse(*before, lost)
    answer = await browser.ask(stream=True)
    last = answer.body.strip().split(b"\n\n")[-1]
    assert json.loads(last.removeprefix(b"data: "))["error"]["message"] == "gone"
    assert b"[DONE]" not in answer.body
    [line] = browser.logged
    assert (line["status"], line["error"]) == (200, "backend_unavailable")
    counted = (await browser.send("GET", "/metrics")).body
    assert b'inferd_bridge_failures_total{code="backend_unavailable"} 1.0' in counted


async def test_a_failure_waits_for_the_status_line_on_its_way(
    browse, autojump_clock, monkeypatch
):
    take = Answer.take

    async def take_slowly(self: Answer, message: Any) -> None:
        await trio.sleep(5)
        await take(self, message)

    monkeypatch.setattr(Answer, "take", take_slowly)
    lost = BridgeError(Reason.UNAVAILABLE, "gone")
    answer = await browse(12.0, lost).ask(stream=True)
    assert answer.status == 200
    assert answer.body.startswith(b":")
    assert b"gone" in answer.body


async def test_an_answer_that_is_not_streamed_never_ends_half(browse, autojump_clock):
    answer = await browse(text("x"), BridgeError(Reason.UNAVAILABLE, "gone")).ask()
    assert (answer.status, answer.error["code"]) == (503, "backend_unavailable")


@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_hangs_up_ends_its_request_at_once(
    tmp_path, autojump_clock, streams
):
    daemon = ScriptedDaemon(text("x"), 1000.0, done())
    body = json.dumps({**HI, "stream": streams}).encode()
    await Browser(tmp_path, daemon).send("POST", CHAT, body, hangs_up_at=3)
    assert daemon.ended_at == 3


# --- bounds -------------------------------------------------------------------------


async def test_a_body_is_bounded_in_bytes_and_seconds(hello, autojump_clock):
    large = await hello.send("POST", CHAT, b"x" * 1025)
    assert (large.status, large.error["code"]) == (413, "request_too_large")
    stated = await hello.send("POST", CHAT, headers={"content-length": "1025"})
    assert stated.status == 413
    slow = await hello.send("POST", CHAT, body_takes_s=61)
    assert (slow.status, slow.error["code"]) == (408, "request_timeout")


async def test_bodies_are_bounded_together_for_each_alone_and_given_back(
    hello, autojump_clock
):
    async with trio.open_nursery() as nursery:
        key = hello.token()
        length = {"content-length": "1024"}
        slow = partial(hello.send, "POST", CHAT, body_takes_s=5)
        for headers in (length, {**length, "authorization": f"Bearer {key}"}):
            for _ in range(2):
                nursery.start_soon(partial(slow, headers=headers))
                await trio.sleep(0.1)
            assert (await hello.ask()).status == 429  # of one user, or of all
    assert (await hello.ask()).status == 200


async def test_one_caller_leaves_connections_for_others(hello, autojump_clock):
    async with trio.open_nursery() as nursery:
        for _ in range(SETTINGS.max_connections // 2):
            nursery.start_soon(partial(hello.send, "POST", CHAT, body_takes_s=5))
        await trio.sleep(1)
        refused = await hello.ask()
        assert (refused.status, refused.headers["connection"]) == (429, "close")
        assert (await hello.ask(uid=OTHER, key=hello.token())).status == 200
    assert (await hello.ask()).status == 200


# --- who asks -----------------------------------------------------------------------


async def test_only_the_own_user_and_holders_of_tokens_are_answered(
    tmp_path, autojump_clock
):
    daemon = ScriptedDaemon(done())
    browser = Browser(tmp_path, daemon)
    refused = await browser.ask(uid=OTHER)
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert (await browser.ask(uid=OTHER, key="sk-anything")).status == 401
    assert (await browser.ask(uid=OTHER, key=browser.token())).status == 200
    assert (await browser.ask(key="sk-anything")).status == 200
    assert daemon.principals == ["ada", "local"]


async def test_a_token_that_is_not_valid_is_refused_even_to_the_own_user(
    hello, autojump_clock
):
    assert (await hello.ask(key=f"inferd-{'0' * 12}-{'0' * 64}")).status == 401


async def test_tokens_are_tried_a_few_times_and_then_once_a_second(
    hello, autojump_clock
):
    valid = hello.token()
    codes = [
        (await hello.ask(uid=OTHER, key="inferd-x")).error["code"]
        for _ in range(FAILED_TOKENS + 1)
    ]
    assert codes == ["invalid_api_key"] * FAILED_TOKENS + ["too_many_failed_tokens"]
    assert (await hello.ask(uid=OTHER, key=valid)).status == 429
    assert (await hello.ask(uid=OWN, key=valid)).status == 200  # counted for each alone
    await trio.sleep(1)
    assert (await hello.ask(uid=OTHER, key=valid)).status == 200


async def test_why_tokens_cannot_be_read_is_the_operators_to_know(
    hello, autojump_clock
):
    key = hello.token()
    hello.tokens.chmod(0o666)
    refused = await hello.ask(uid=OTHER, key=key)
    assert (refused.status, refused.error["message"]) == (503, "tokens cannot be read")
    assert str(hello.tokens) in hello.logged[0]["reason"]


async def test_a_scope_and_a_quota_are_kept(hello, autojump_clock):
    assert (
        await hello.ask(uid=OTHER, key=hello.token(scopes=("models",)))
    ).status == 403
    limited = hello.token("bob", quota=10)
    assert (await hello.ask(uid=OTHER, key=limited)).status == 200
    over = await hello.ask(uid=OTHER, key=limited)
    assert (over.status, over.error["type"]) == (429, "insufficient_quota")
    assert int(over.headers["retry-after"]) > 0


async def test_a_quota_is_not_exceeded_by_asking_at_once(tmp_path, autojump_clock):
    browser = Browser(tmp_path, ScriptedDaemon(5.0, text("x"), done()))
    key = browser.token("bob", quota=50)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(browser.ask, uid=OTHER, key=key))
        await trio.sleep(1)
        second = await browser.ask(uid=OTHER, key=key)
        assert (second.status, second.headers["retry-after"]) == (429, "1")
    third = await browser.ask(uid=OTHER, key=key)
    assert third.status == 200
    assert third.headers["x-ratelimit-remaining-tokens"] == "0"  # reserved by itself
    assert browser.quota.usage().used == {"bob": 20}


@pytest.mark.parametrize(("is_counted", "status"), [(False, 429), (True, 200)])
async def test_a_prompt_that_is_counted_reserves_no_more_than_it_has(
    tmp_path, autojump_clock, is_counted, status
):
    counted = ProgressFrame(id="r", status="prefill", processed=0, total=11)
    waited = ProgressFrame(id="r", status="queued", position=1)
    told = counted if is_counted else waited
    browser = Browser(tmp_path, ScriptedDaemon(told, 5.0, text("x"), done()))
    key = browser.token("bob", quota=60)  # fewer than the bytes of the body
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(browser.ask, uid=OTHER, key=key, max_tokens=9))
        await trio.sleep(1)
        second = await browser.ask(uid=OTHER, key=key, max_tokens=9)
        assert second.status == status
    assert browser.quota.usage().used == {"bob": 20 if is_counted else 10}


async def test_the_prompt_of_an_answer_that_is_cut_is_counted(tmp_path, autojump_clock):
    prefill: list[Step] = [
        ProgressFrame(id="r", status="prefill", processed=n, total=700)
        for n in (0, 512)
    ]
    for script, used in (
        ([*prefill, 99.0], 512),
        ([*prefill, text("x"), 99.0], 701),
    ):
        browser = Browser(tmp_path, ScriptedDaemon(*script))
        key = browser.token("bob", quota=9000)
        await browser.send(
            "POST",
            CHAT,
            json.dumps(HI).encode(),
            headers={"authorization": f"Bearer {key}"},
            uid=OTHER,
            hangs_up_at=trio.current_time() + 3,
        )
        assert browser.quota.usage().used == {"bob": used}


@pytest.mark.parametrize(
    ("script", "used"),
    [
        pytest.param([99.0], {"bob": 30}, id="hang-up"),
        pytest.param([BridgeError(Reason.UNAVAILABLE, "no")], {}, id="refused"),
    ],
)
async def test_vectors_that_nobody_waits_for_count_all_that_was_reserved(
    tmp_path, autojump_clock, script, used
):
    browser = Browser(tmp_path, ScriptedDaemon(*script))
    body = b'{"input":"a text"}'.ljust(30)
    await browser.send(
        "POST",
        "/v1/embeddings",
        body,
        headers={"authorization": f"Bearer {browser.token('bob', quota=9000)}"},
        uid=OTHER,
        hangs_up_at=3,
    )
    assert browser.quota.usage().used == used


async def test_a_compressed_body_is_refused(hello, autojump_clock):
    zipped = await hello.send("POST", CHAT, b"x", headers={"content-encoding": "gzip"})
    assert (zipped.status, zipped.error["code"]) == (415, "unsupported_encoding")
    plain = {"content-encoding": "identity"}
    body = json.dumps(HI).encode()
    assert (await hello.send("POST", CHAT, body, headers=plain)).status == 200


async def test_pages_are_refused_unless_configured(hello, autojump_clock):
    evil = await hello.send("GET", "/v1/models", headers={"origin": "https://evil"})
    assert (evil.status, "access-control-allow-origin" in evil.headers) == (403, False)
    asked = await hello.send("OPTIONS", CHAT, headers={"origin": "https://page"})
    assert asked.status == 200
    assert asked.headers["access-control-allow-origin"] == "https://page"
    rebound = await hello.send("GET", "/v1/models", headers={"host": "evil.example"})
    assert rebound.status == 403


# --- other routes -------------------------------------------------------------------


async def test_other_paths_of_a_route_lead_to_it(hello, autojump_clock):
    body = json.dumps(HI).encode()
    for path in (CHAT, "/chat/completions"):
        assert (await hello.send("POST", path, body)).status == 200
    listed = [await hello.send("GET", path) for path in ("/v1/models", "/models")]
    assert listed[0].body == listed[1].body
    counted = hello.app.metrics.text().decode()
    assert f'route="{CHAT}"' in counted
    assert 'route="/chat/completions"' not in counted


async def test_models_are_listed_and_found(hello, autojump_clock):
    found = json.loads((await hello.send("GET", "/v1/models")).body)
    assert [each["id"] for each in found["data"]] == ["a/b:c"]
    one = await hello.send("GET", "/v1/models/a/b:c")
    assert json.loads(one.body)["id"] == "a/b:c"
    assert (await hello.send("GET", "/v1/models/x")).error["code"] == "model_not_found"


async def test_other_routes_and_methods_are_refused_in_openais_form(
    hello, autojump_clock
):
    missing = await hello.send("POST", "/v1/images")
    assert (missing.status, missing.error["code"]) == (404, "route_not_found")
    wrong = await hello.send("GET", CHAT)
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    several = await hello.send("DELETE", "/api/blobs/sha256:0")
    assert (several.status, several.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_health_needs_no_token_and_metrics_do(hello, browse, autojump_clock):
    assert (await hello.send("GET", "/health", uid=OTHER)).status == 200
    assert (await hello.send("GET", "/ready", uid=OTHER)).status == 200
    assert (await browse().send("GET", "/ready")).status == 503
    for path in ("/metrics", "/server_info"):
        assert (await hello.send("GET", path, uid=OTHER)).status == 401
        assert (await hello.send("GET", path)).status == 200
    text_of = (await hello.send("GET", "/metrics")).body.decode()
    assert 'inferd_bridge_requests_total{route="/health",status="200"} 1.0' in text_of


async def test_a_bug_is_told_without_its_text(hello, autojump_clock, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(hello.app._router, "routes", [])
    monkeypatch.setattr(hello.app._router, "default", fail)
    answer = await hello.ask()
    assert (answer.status, answer.error["code"]) == (500, "internal")
    written = json.dumps(hello.logged)
    assert "RuntimeError at " in written
    assert "secret" not in written + answer.body.decode()


async def test_the_log_has_no_word_of_a_client(hello, autojump_clock):
    key = hello.token()
    await hello.ask(uid=OTHER, key=key, messages=[{"role": "user", "content": "ssh"}])
    await hello.send("GET", "/v1/ssh?ssh", headers={"x-ssh": "ssh"})
    first, second = hello.logged
    assert (first["principal"], first["tokens"], first["status"]) == ("ada", 10, 200)
    assert (first["route"], first["method"]) == (CHAT, "POST")
    assert second["status"] == 404
    assert "ssh" not in json.dumps([first, second])
    assert key not in json.dumps([first, second])
