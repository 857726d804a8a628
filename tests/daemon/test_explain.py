"""What a real daemon tells of requests afterwards, and how ``inferd explain`` says it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.daemon.ended import ended_record
from tests.daemon.fixtures import daemons
from tests.daemon.harness import (
    DaemonProcess,
    clean_environ,
    generate,
    mock,
)

pytestmark = pytest.mark.slow

ENDLESS = mock(tokens=["x"] * 10_000, token_delay_ms=5)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """A daemon that has one place to run and one to wait, for a gateway's principals."""
    access = {"gateways": {"uids": [os.getuid()]}}
    admission = {"max_active": 1, "max_queued": 1}
    with daemons() as make:
        config = {"backend": [ENDLESS], "access": access, "admission": admission}
        yield make(config).start()


def said(daemon: DaemonProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "inferd", "explain", *arguments]
    return subprocess.run(
        [*command, "--directory", str(daemon.directory)],
        capture_output=True,
        text=True,
        env=clean_environ(),
        check=False,
    )


def test_who_waits_is_told_behind_whom_and_the_refused_and_cancelled_why(
    daemon: DaemonProcess,
):
    running = daemon.begin("first", principal="ann")
    running.frame()
    waiting = daemon.begin("second", principal="bob", max_tokens=2, progress=True)
    [refusal] = daemon.ask(id="third", principal="bob")
    assert refusal["code"] == "queue_full"
    present = daemon.admin().order("explain", id="second")["explained"]
    assert [each["phase"] for each in present] == ["queued"]
    assert daemon.admin().order("cancel", id="first")["ok"]
    assert running.frames()[-1]["stop_reason"] == "cancelled"
    assert waiting.frames()[-1]["type"] == "done"
    first, second, third = (
        ended_record(daemon, each) for each in ("first", "second", "third")
    )
    assert (first["outcome"], third["outcome"]) == ("cancelled", "queue_full")
    uid = os.getuid()
    assert second["waited_for"] == [{"uid": uid, "principal": "ann", "requests": 1}]
    assert (second["positions"], second["n_waiting"]) == ([1], 0)
    assert second["waiting_ms"] > 0
    assert second["output_tokens"] == 2
    assert "waited_for" not in first
    assert "run_ms" not in third
    assert first["number"] < second["number"] < third["number"]
    story = said(daemon, "second")
    assert story.returncode == 0
    assert f"the permits had uid {uid} for ann; position 1" in story.stdout
    [record] = said(daemon, "second", "--json").stdout.splitlines()
    assert json.loads(record) == second
    assert "queue_full" in said(daemon).stdout


def test_a_worker_that_dies_is_why_a_request_ended(daemon: DaemonProcess):
    daemon.leave()
    running = daemon.begin("doomed")
    running.frame()
    daemon.kill_worker()
    assert running.frames()[-1]["code"] == "backend_unavailable"
    record = ended_record(daemon, "doomed")
    assert record["outcome"] == "backend_unavailable"
    assert record["output_tokens"] >= 1


def test_what_is_not_known_is_an_error_that_says_how_far_back_the_records_go(
    daemon: DaemonProcess,
):
    with daemon.connect() as client:
        client.ask(generate(id="known", max_tokens=1))
    ended_record(daemon, "known")
    refusal = said(daemon, "nobody")
    assert refusal.returncode == 2
    assert 'no request with the id "nobody" is known: of those' in refusal.stderr
