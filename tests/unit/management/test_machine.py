"""What the daemon says, as the helper passes it on."""

import msgspec
from msgspec import Raw

from inferd.limits.bridge import MAX_TOLD_REQUESTS
from inferd.management.machine import managed_backends, managed_log, managed_machine
from inferd.wire.commands import BackendInfo, Reply, RequestInfo
from inferd.wire.management import ManagedBackend
from tests.fakes.overview import OVERVIEW

METRICS = Reply(command="metrics", ok=True, text="inferd_tasks 1.0\n")


def request(**fields: object) -> RequestInfo:
    known = {"id": "secret", "socket": "infer.sock", "uid": 7, "pid": 8}
    more = {"phase": "running", "age_ms": 5.0, "output_tokens": 2}
    return msgspec.convert({**known, **more, **fields}, RequestInfo)


def test_a_backend_is_told_with_its_slots():
    info = BackendInfo(
        name="chat",
        ready=True,
        state="ready",
        capabilities=Raw(b'{"n_slots":4,"n_ctx":8192,"tools":true}'),
    )
    [told] = managed_backends(Reply(command="backends", ok=True, backends=[info]))
    assert told == ManagedBackend(
        name="chat", ready=True, state="ready", n_slots=4, n_ctx=8192
    )


def test_what_runs_comes_before_the_queue_and_no_id_is_told():
    listed = [
        request(phase="queued", position=2),
        request(phase="queued", position=1, principal="ada"),
        request(backend="chat"),
    ]
    told = managed_machine(
        Reply(command="requests", ok=True, requests=listed, omitted=3),
        METRICS,
        OVERVIEW,
    )
    assert [(each.phase, each.position) for each in told.requests] == [
        ("running", None),
        ("queued", 1),
        ("queued", 2),
    ]
    assert (told.n_omitted, told.metrics) == (3, "inferd_tasks 1.0\n")
    assert told.overview is OVERVIEW
    assert "secret" not in str(told)


def test_many_requests_are_counted_and_few_told():
    listed = [request()] * (MAX_TOLD_REQUESTS + 2)
    told = managed_machine(
        Reply(command="requests", ok=True, requests=listed), METRICS, OVERVIEW
    )
    assert (len(told.requests), told.n_omitted) == (MAX_TOLD_REQUESTS, 2)


def test_lines_of_the_log_are_passed_on():
    assert managed_log(Reply(command="log", ok=True, lines=["{}"])).lines == ("{}",)
