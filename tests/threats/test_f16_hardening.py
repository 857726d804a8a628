import re
from pathlib import Path

import pytest

from tests.daemon.harness import mock

UNIT = Path(__file__).parents[2] / "systemd" / "inferd.service"


def directives() -> dict[str, list[str]]:
    """Read the unit: a directive may stand more than once."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateNetwork", "yes"),
        ("PrivateDevices", "yes"),
        ("PrivateTmp", "yes"),
        ("RestrictAddressFamilies", "AF_UNIX"),
        ("RestrictNamespaces", "yes"),
        ("CapabilityBoundingSet", ""),
        ("AmbientCapabilities", ""),
        ("MemoryDenyWriteExecute", "yes"),
        ("LimitCORE", "0"),
        ("UMask", "0077"),
    ],
)
def test_the_service_is_hardened(name, value):
    assert directives()[name] == [value]


def test_system_calls_are_those_of_a_service_without_the_dangerous_ones():
    allowed, *refused = directives()["SystemCallFilter"]
    assert allowed == "@system-service"
    for group in ("@privileged", "@debug", "@module", "@mount", "@raw-io", "@swap"):
        assert any(each.startswith("~") and group in each for each in refused)


@pytest.mark.slow
def test_a_running_worker_is_in_its_box(make_daemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    daemon.ask()
    [worker] = daemon.worker_pids()
    status = dict(
        line.split(":\t")
        for line in Path(f"/proc/{worker}/status").read_text().splitlines()
    )
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    limits = Path(f"/proc/{worker}/limits").read_text()
    assert re.search(r"Max core file size +0 +0 ", limits)
    boxed = [line for line in daemon.log_lines() if line["event"] == "worker.boxed"]
    assert [(each["seccomp"], each["is_open"]) for each in boxed] == [(True, False)]


def test_workers_may_box_themselves_in_within_the_service():
    allowed = directives()["SystemCallFilter"][-1].split()
    calls = {"create_ruleset", "add_rule", "restrict_self"}
    assert {f"landlock_{each}" for each in calls} | {"seccomp"} == set(allowed)


def test_the_service_runs_as_somebody_of_its_own():
    [user] = directives()["User"]
    assert user not in ("root", "0", "nobody")
