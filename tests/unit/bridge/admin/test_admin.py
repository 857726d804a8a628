"""Routes to manage models: what is asked of the helper, and the form of its answers."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from inferd.bridge.access_log import BridgeLog
from inferd.bridge.http.app import BridgeApp
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.upstream.helper import HelperClient
from inferd.wire.management import (
    HelperDone,
    HelperFrame,
    HelperRequest,
    ManagedBackend,
    ManagedFile,
    ManagedLog,
    ManagedMachine,
    ManagedModel,
    PullProgress,
)
from tests.fakes.overview import OVERVIEW
from tests.unit.bridge.http.test_app import OTHER, Browser, ScriptedDaemon

MODEL = ManagedModel(
    name="a/b:c",
    kind="llamacpp",
    source="hf:a/b",
    revision="",
    license="mit",
    created="2026-11-23T00:00:00Z",
    files=(ManagedFile(name="b.gguf", sha256="0" * 64, n_bytes=3, role="model"),),
    is_complete=True,
)
BACKEND = ManagedBackend(name="chat", ready=True)
MACHINE = ManagedMachine(requests=(), overview=OVERVIEW, metrics="")
DONE = HelperDone()
ROUTES: list[tuple[str, str, dict[str, str] | None]] = [
    ("GET", "/admin/models", None),
    ("GET", "/admin/models/a/b:c", None),
    ("DELETE", "/admin/models/a/b:c", None),
    ("POST", "/admin/pull", {"source": "hf:a/b"}),
    ("GET", "/admin/backends", None),
    ("GET", "/admin/machine", None),
    ("GET", "/admin/log", None),
    ("POST", "/admin/load", {"model": "chat"}),
    ("POST", "/admin/unload", {"model": "chat"}),
    ("POST", "/admin/reload", None),
]


class ScriptedHelper(HelperClient):
    """Says what a test tells it, and notes what it is asked."""

    def __init__(self) -> None:
        super().__init__(None)
        self.script: list[HelperFrame | BridgeError] = [DONE]
        self.asked: list[HelperRequest] = []

    async def ask(
        self, request: HelperRequest
    ) -> AsyncGenerator[list[HelperFrame], None]:
        self.asked.append(request)
        for step in self.script:
            if isinstance(step, BridgeError):
                raise step
            yield [step]


class Manager(Browser):
    """A client of an application with a helper."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path, ScriptedDaemon())
        self.helper = ScriptedHelper()
        app = self.app
        self.app = BridgeApp(
            app._daemon,
            app._callers,
            app._rules,
            app._settings,
            BridgeLog(list[bytes]().append),
            helper=self.helper,
        )

    async def call(
        self, method: str, path: str, fields: object = None, key: str = ""
    ) -> Any:
        body = b"" if fields is None else json.dumps(fields).encode()
        headers = {"authorization": f"Bearer {key}"} if key else {}
        uid = OTHER if key else 1000
        return await self.send(method, path, body, headers=headers, uid=uid)


@pytest.fixture
def manager(tmp_path):
    return Manager(tmp_path)


@pytest.mark.parametrize(("method", "path", "fields"), ROUTES)
async def test_a_route_needs_its_own_scope(
    manager, autojump_clock, method, path, fields
):
    needed = "models" if path.startswith(("/admin/models", "/admin/pull")) else "admin"
    others = {"inference", "models", "admin"} - {needed}
    key = manager.token("eve", scopes=tuple(sorted(others)))
    refused = await manager.call(method, path, fields, key)
    assert (refused.status, manager.helper.asked) == (403, [])
    assert f"scope {needed}" in refused.error["message"]
    manager.helper.script = [MODEL, MACHINE, DONE]
    key = manager.token("ada", scopes=(needed,))
    assert (await manager.call(method, path, fields, key)).status == 200
    assert [each.principal for each in manager.helper.asked] == ["ada"]


async def test_what_is_asked_follows_from_the_route(manager, autojump_clock):
    manager.helper.script = [MODEL, MACHINE, DONE]
    for method, path, fields in ROUTES:
        await manager.call(method, path, fields)
    asked = [(each.command, each.model, each.source) for each in manager.helper.asked]
    assert asked == [
        ("list", "", ""),
        ("show", "a/b:c", ""),
        ("remove", "a/b:c", ""),
        ("pull", "", "hf:a/b"),
        ("status", "", ""),
        ("machine", "", ""),
        ("log", "", ""),
        ("load", "chat", ""),
        ("unload", "chat", ""),
        ("reload", "", ""),
    ]


async def test_answers_are_objects_and_a_pull_is_lines(manager, autojump_clock):
    manager.helper.script = [MODEL, DONE]
    listed = await manager.call("GET", "/admin/models")
    assert [each["name"] for each in json.loads(listed.body)["models"]] == ["a/b:c"]
    manager.helper.script = [BACKEND, DONE]
    listed = await manager.call("GET", "/admin/backends")
    assert json.loads(listed.body)["backends"][0]["ready"] is True
    manager.helper.script = [ManagedLog(lines=("{}",)), DONE]
    told = await manager.call("GET", "/admin/log")
    assert json.loads(told.body) == {"type": "log", "lines": ["{}"]}
    progress = PullProgress(phase="download", file="m", done=1, total=2)
    manager.helper.script = [progress, HelperDone(model="m")]
    pulled = await manager.call("POST", "/admin/pull", {"source": "hf:a/b"})
    assert pulled.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in pulled.body.splitlines()]
    assert [line["type"] for line in lines] == ["progress", "done"]
    whole = await manager.call(
        "POST", "/admin/pull", {"source": "hf:a/b", "stream": False}
    )
    assert json.loads(whole.body) == {"type": "done", "model": "m"}


async def test_a_pull_that_fails_after_its_status_line_ends_with_a_line(
    manager, autojump_clock
):
    failed = BridgeError(Reason.NOT_DONE, "gone")
    manager.helper.script = [PullProgress(phase="plan"), failed]
    answer = await manager.call("POST", "/admin/pull", {"source": "hf:a/b"})
    last = json.loads(answer.body.splitlines()[-1])
    assert (last["type"], last["error"]["message"]) == ("error", "gone")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"source": "hf:a/b", "name": "\x1b[2J"}, "name"),
        ({"source": "hf:a/b", "sha256": "0"}, "sha256"),
        ({"source": 1}, "source"),
        ({"source": "hf:a/b", "insecure": True}, "insecure"),
    ],
)
async def test_a_field_that_is_wrong_is_named(manager, autojump_clock, fields, param):
    answer = await manager.call("POST", "/admin/pull", fields)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert manager.helper.asked == []


async def test_without_a_helper_the_operator_reads_what_to_do(
    tmp_path, autojump_clock, monkeypatch
):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    manager = Manager(tmp_path)
    manager.app._helper = HelperClient(tmp_path)
    answer = await manager.call("GET", "/admin/models")
    assert (answer.status, answer.error["code"]) == (501, "not_configured")
    assert "inferd bridge helper" in answer.error["message"]


async def test_only_those_who_manage_read_who_asked_what(manager, autojump_clock):
    ada = manager.token("ada")
    bob = manager.token("bob", scopes=("inference", "admin"))
    await manager.call("GET", "/server_info", key=ada)
    plain = await manager.call("GET", "/metrics", key=ada)
    assert b"ada" not in plain.body
    full = await manager.call("GET", "/metrics", key=bob)
    assert b'principal_requests_total{principal="ada"} 2.0' in full.body


@pytest.mark.parametrize("path", ["/metrics", "/server_info"])
async def test_those_who_manage_alone_see_how_the_bridge_does(
    manager, autojump_clock, path
):
    statuses = {}
    for scope in ("inference", "models", "admin"):
        key = manager.token(scope, scopes=(scope,))
        statuses[scope] = (await manager.call("GET", path, key=key)).status
    assert statuses == {"inference": 200, "models": 403, "admin": 200}


async def test_a_caller_is_told_its_share_and_no_name_of_others(
    manager, autojump_clock
):
    ada, bob = manager.token("ada"), manager.token("bob")
    manager.app.metrics.tokens_used("r", 30, "ada")
    manager.app.metrics.tokens_used("r", 10, "bob")
    told = await manager.call("GET", "/status", key=ada)
    status = json.loads(told.body)
    assert (status["name"], status["tokens"], status["all_tokens"]) == ("ada", 30, 40)
    assert (status["requests"], status["requests_at_once"]) == ([], 2)
    assert "bob" not in told.body.decode()
    told = json.loads((await manager.call("GET", "/status", key=bob)).body)
    assert told["tokens"] == 10
