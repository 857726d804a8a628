import json
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from inferd import surfaces
from inferd.admission.control import Admission, RequestTraits
from inferd.backend.capabilities import (
    AcceleratorInfo,
    AcceleratorKind,
    BackendCapabilities,
)
from inferd.config.served import StoreView
from inferd.config.settings import Config, ModelsSettings
from inferd.limits.protocol import MAX_LISTED_MODELS
from inferd.limits.server import MAX_LISTED_ID_CHARS, MAX_LISTED_REQUESTS
from inferd.routing import ModelNames
from inferd.server.admin.commands import Commands
from inferd.server.admin.reload import ReloadError, ReloadResult
from inferd.server.identity.peer import Peer
from inferd.server.inflight import InFlight
from inferd.server.loading.store_models import StoreModels
from inferd.server.queue.requests import Permit, RequestQueue
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.metrics import Metrics
from inferd.wire.codec import encode
from inferd.wire.commands import Reply
from tests.fakes.backend import ScriptedBackend
from tests.fakes.output import Spoken
from tests.fakes.streams import Frame, to_line

ROOT = Peer(pid=1, uid=0, gid=0)
DAEMON = Peer(pid=2, uid=70_000, gid=0)
ANNA = Peer(pid=3, uid=70_001, gid=100)
BERT = Peer(pid=4, uid=70_002, gid=100)
REQUESTS = {"command": "requests"}


@pytest.fixture(autouse=True)
def _who_runs_the_daemon(monkeypatch):
    fake = SimpleNamespace(getuid=lambda: DAEMON.uid)
    monkeypatch.setattr("inferd.server.identity.access.os", fake)


def at_once(answer: Coroutine[Any, Any, Reply]) -> Reply:
    """Have a command carried out that takes no time."""
    with pytest.raises(StopIteration) as end:
        answer.send(None)
    assert isinstance(end.value.value, Reply)
    return end.value.value


class Office:
    """Commands, and the requests that they are about."""

    def __init__(self, *backends: ScriptedBackend) -> None:
        self.metrics = Metrics()
        self.in_flight = InFlight(self.metrics)
        self.turns = RequestQueue(Admission(max_active=1, max_queued=10))
        self.n_drains = 0
        self.is_ready = True
        self.n_reloads = 0
        self.broken = ""
        self.commands = Commands(
            in_flight=self.in_flight,
            queue=self.turns,
            backends=backends,
            metrics=self.metrics,
            drain=self._drain,
            reload=self._reload,
            names=ModelNames({"up": ["fast", "best"]}),
        )
        self._stack = ExitStack()

    def _drain(self) -> bool:
        self.n_drains += 1
        return self.is_ready

    async def _reload(self) -> ReloadResult:
        self.n_reloads += 1
        if self.broken:
            raise ReloadError(self.broken)
        return ReloadResult(["limits.drain_s"], ["backend"])

    def come(self, peer: Peer, request_id: str = "r") -> RequestContext:
        """Have a request come in, for as long as the test lasts."""
        context = RequestContext(peer, surfaces.INFER, request_id, trio.current_time())
        self.in_flight.add(context)
        return context

    def queue(self, context: RequestContext) -> Permit:
        """Let it wait for a permit, or have one."""
        context.permit = self._stack.enter_context(self.turns.admitted(RequestTraits()))
        return context.permit

    def leave(self) -> None:
        """End all that wait or have a permit: it takes the clock of the test."""
        self._stack.close()

    def ask(self, line: Frame | bytes, peer: Peer = DAEMON) -> Frame:
        """Give a command; read the reply as a listener does."""
        data = line if isinstance(line, bytes) else to_line(line)
        told = at_once(self.commands.answer(data, peer))
        return dict(json.loads(encode(told)))


def reply(command: str, **fields: Any) -> Frame:
    return {"id": "admin", "type": "reply", "command": command, "ok": True, **fields}


def refusal(command: str, error: str) -> Frame:
    return reply(command, error=error) | {"ok": False}


# --- requests ---------------------------------------------------------------------------


async def test_no_requests_are_an_empty_list():
    assert Office().ask({"command": "requests"}) == reply("requests", requests=[])


async def test_requests_are_listed_in_order_of_arrival(autojump_clock):
    office = Office()
    running, queued, new = (office.come(ANNA, name) for name in ("a", "b", "c"))
    office.queue(running)
    office.queue(queued)
    await trio.sleep(1.5)
    running.started()
    running.backend = queued.backend = "chat"
    running.output = Spoken(5)
    told = office.ask({"command": "requests"})
    anna = {"socket": "infer.sock", "uid": 70_001, "pid": 3, "age_ms": 1500.0}
    assert told["requests"] == [
        {**anna, "id": "a", "phase": "running", "backend": "chat", "output_tokens": 5},
        {
            **anna,
            "id": "b",
            "phase": "queued",
            "backend": "chat",
            "position": 1,
            "output_tokens": 0,
        },
        {**anna, "id": "c", "phase": "queued", "output_tokens": 0},
    ]
    assert new.permit is None
    office.leave()


async def test_users_who_are_no_operators_see_only_their_own_requests():
    office = Office()
    for peer, name in ((ANNA, "a"), (BERT, "b")):
        office.come(peer, name)
    seen = {
        peer.uid: [each["id"] for each in office.ask(REQUESTS, peer)["requests"]]
        for peer in (ROOT, DAEMON, ANNA, BERT)
    }
    assert list(seen.values()) == [["a", "b"], ["a", "b"], ["a"], ["b"]]


async def test_a_list_has_a_bounded_number_of_requests():
    office = Office()
    for _ in range(MAX_LISTED_REQUESTS):
        office.come(ANNA)
    assert "omitted" not in office.ask(REQUESTS)
    office.come(ANNA)
    told = office.ask(REQUESTS)
    assert (len(told["requests"]), told["omitted"]) == (MAX_LISTED_REQUESTS, 1)


async def test_a_list_has_ids_of_a_bounded_length():
    office = Office()
    for n_chars in (MAX_LISTED_ID_CHARS, MAX_LISTED_ID_CHARS + 1):
        office.come(ANNA, "x" * n_chars)
    ids = [each["id"] for each in office.ask(REQUESTS)["requests"]]
    assert ids == ["x" * MAX_LISTED_ID_CHARS, "x" * MAX_LISTED_ID_CHARS + "…"]


async def test_waiting_requests_are_listed_with_their_positions():
    office = Office()
    contexts = [office.come(ANNA, name) for name in "abc"]
    for context in contexts:
        office.queue(context)
    told = office.ask({"command": "requests"})["requests"]
    assert [each.get("position") for each in told] == [None, 1, 2]
    office.leave()


# --- backends ---------------------------------------------------------------------------


async def test_backends_are_listed_with_state_and_capabilities():
    able = BackendCapabilities(
        model="m",
        n_ctx=8,
        embed=True,
        accelerator=AcceleratorInfo(
            kind=AcceleratorKind.CUDA,
            gpu_layers=7,
            device_name="Card",
            vram_total_bytes=9,
            vram_free_bytes=2,
        ),
    )
    down = ScriptedBackend(name="down")
    down.go_down("on fire")
    waiting = ScriptedBackend(name="waiting", is_ready=False)
    office = Office(ScriptedBackend(name="up", capabilities=able), down, waiting)
    told = office.ask({"command": "backends"})
    up, *others = told["backends"]
    capabilities = up.pop("capabilities")
    assert up.pop("aliases") == ["fast", "best"]
    assert up == {"name": "up", "ready": True, "state": "ready"}
    assert capabilities["model"] == "m"
    assert capabilities["generate"] is capabilities["embed"] is True
    assert capabilities["rerank"] is False
    assert capabilities["accelerator"] == {
        "kind": "cuda",
        "gpu_layers": 7,
        "device_name": "Card",
        "vram_total_bytes": 9,
        "vram_free_bytes": 2,
    }
    assert all(each.pop("capabilities") for each in others)
    assert others == [
        {"name": "down", "ready": False, "state": "failed", "unavailable": "on fire"},
        {"name": "waiting", "ready": False, "state": "loading"},
    ]


# --- metrics ----------------------------------------------------------------------------


async def test_metrics_are_text_that_a_monitoring_system_reads():
    office = Office()
    office.metrics.worker_died("chat")
    told = office.ask({"command": "metrics"})
    families = list(text_string_to_metric_families(told.pop("text")))
    assert told == reply("metrics")
    assert "inferd_worker_deaths" in [family.name for family in families]


# --- cancel -----------------------------------------------------------------------------


async def test_cancel_ends_every_request_with_the_id_and_counts_them():
    office = Office()
    meant = [office.come(ANNA, "r") for _ in range(2)]
    other = office.come(ANNA, "other")
    told = office.ask({"command": "cancel", "id": "r"})
    assert told == reply("cancel", cancelled=2)
    assert [each.is_cancelled for each in [*meant, other]] == [True, True, False]


@pytest.mark.parametrize(
    ("who", "may"), [(ROOT, True), (DAEMON, True), (ANNA, True), (BERT, False)]
)
async def test_only_operators_cancel_other_users_requests(who, may):
    office = Office()
    request = office.come(ANNA, "r")
    told = office.ask({"command": "cancel", "id": "r"}, who)
    assert told["ok"] is request.is_cancelled is may
    if not may:
        assert told == refusal("cancel", 'no request has the id "r"')


async def test_a_user_cancels_only_its_own_request_of_two_with_one_id():
    office = Office()
    hers, his = office.come(ANNA, "r"), office.come(BERT, "r")
    told = office.ask({"command": "cancel", "id": "r"}, BERT)
    assert told["cancelled"] == 1
    assert (hers.is_cancelled, his.is_cancelled) == (False, True)


@pytest.mark.parametrize("name", ["", "x", 'ü\n"'])
async def test_an_unknown_id_is_named_in_the_error(name):
    office = Office()
    office.come(ANNA, "r")
    told = office.ask({"command": "cancel", "id": name})
    quoted = json.dumps(name, ensure_ascii=False)
    assert told == refusal("cancel", f"no request has the id {quoted}")


async def test_a_cancel_without_an_id_is_refused():
    office = Office()
    request = office.come(ANNA, "")
    for line in ({"command": "cancel"}, {"command": "cancel", "id": None}):
        told = office.ask(line)
        assert told == refusal("cancel", "cancel needs the id of a request")
    assert not request.is_cancelled


# --- drain ------------------------------------------------------------------------------


async def test_a_daemon_that_is_not_ready_cannot_be_drained():
    office = Office()
    office.is_ready = False
    refusal = office.ask({"command": "drain"})
    assert refusal["ok"] is False
    assert "not ready" in refusal["error"]


async def test_a_drain_is_started_and_confirmed():
    office = Office()
    assert office.ask({"command": "drain"}) == reply("drain")
    assert office.n_drains == 1


@pytest.mark.parametrize(("who", "may"), [(ROOT, True), (DAEMON, True), (ANNA, False)])
@pytest.mark.parametrize("command", ["drain", "reload"])
async def test_only_operators_change_anything(command, who, may):
    office = Office()
    told = office.ask({"command": command}, who)
    assert told["ok"] is may
    assert office.n_drains + office.n_reloads == may
    if not may:
        assert "root" in told["error"]


async def test_monitoring_may_read_metrics_and_backends():
    office = Office(ScriptedBackend())
    for command in ("backends", "metrics"):
        assert office.ask({"command": command}, ANNA)["ok"]


async def test_operators_read_the_newest_lines_of_the_log():
    office = Office()
    office.commands.log_tail.write({"level": "info", "msg": "worker.exited"})
    told = office.ask({"command": "log"})
    assert told == reply("log", lines=['{"level":"info","msg":"worker.exited"}'])
    refused = office.ask({"command": "log"}, ANNA)
    assert (refused["ok"], "worker" in refused["error"]) == (False, False)


async def test_who_looks_again_and_again_does_not_fill_the_log():
    office = Office()
    with capture_logs() as log:
        for command in ("backends", "log", "metrics", "requests", "drain"):
            office.ask({"command": command})
    levels = {line["command"]: line["log_level"] for line in log}
    assert levels.pop("drain") == "info"
    assert set(levels.values()) == {"debug"}


# --- reload -----------------------------------------------------------------------------


async def test_a_reload_lists_applied_and_pending_settings():
    told = Office().ask({"command": "reload"})
    applied, waiting = ["limits.drain_s"], ["backend"]
    assert told == reply("reload", applied=applied, needs_restart=waiting)


async def test_a_reload_that_fails_says_why():
    office = Office()
    office.broken = "limits.drain_s = -1: expected `float` > 0.0"
    assert office.ask({"command": "reload"}) == refusal("reload", office.broken)


# --- what is no command -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "Drain", "restart", "requests "])
async def test_an_unknown_command_is_told_which_there_are(name):
    office = Office()
    told = office.ask({"command": name})
    assert (told["command"], told["ok"]) == (name, False)
    for known in ("requests", "metrics", "backends", "cancel", "drain", "reload"):
        assert known in told["error"]
    assert office.n_drains == 0


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"drain",
        b"[]",
        b"{}",
        b'{"command":1}',
        b'{"command":"cancel","id":7}',
        b"\xff\xfe",
        b"[" * 10_000,
    ],
)
async def test_an_invalid_line_is_refused_without_a_command_name(line):
    told = Office().ask(line)
    assert (told["command"], told["ok"]) == ("", False)
    assert told["error"].startswith("decode: ")


async def test_unknown_fields_are_ignored():
    told = Office().ask({"command": "requests", "since": "yesterday"})
    assert told["ok"]


async def test_a_command_is_logged_without_its_arguments():
    office = Office()
    with capture_logs() as log:
        office.ask({"command": "cancel", "id": "secret"}, ANNA)
        office.ask({"command": "x" * 10_000})
    assert [line["event"] for line in log] == ["admin.command"] * 2
    assert log[0]["peer"] == str(ANNA)
    assert "secret" not in str(log)
    assert len(str(log)) < 1000


@pytest.mark.parametrize(
    ("n_models", "words"),
    [
        (0, "no model of the store is served"),
        (2, "one of m0, m1"),
        (MAX_LISTED_MODELS + 1, f"m{MAX_LISTED_MODELS - 1}, and 1 more"),
    ],
)
async def test_what_may_be_unloaded_is_listed_up_to_a_bound(n_models, words):
    class Store(StoreModels):
        def unread(self) -> list[str]:
            return [f"m{number}" for number in range(n_models)]

    async def look(*_) -> StoreView:
        raise AssertionError("nobody has named a model of it")

    office = Office(ScriptedBackend(name="up"))
    store = Store(Config(models=ModelsSettings(serve=True)), look, ModelNames())
    office.commands = replace(office.commands, store=store)
    told = office.ask({"command": "unload", "backend": "up-or-down"})
    assert (told["ok"], told["error"].endswith(words)) == (False, True)
    assert told["code"] == "model_not_found"
    told = office.ask({"command": "unload", "backend": "up"})
    assert (told["ok"], told["code"]) == (False, "invalid_request")
