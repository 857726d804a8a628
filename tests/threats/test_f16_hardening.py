import re
from pathlib import Path

import pytest

from tests.daemon.harness import mock

UNITS = Path(__file__).parents[2] / "systemd"
SERVICES = ["inferd.service", "inferd@.service"]


def directives(unit: str) -> dict[str, list[str]]:
    """Read a unit: a directive may stand more than once."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / unit).read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("unit", SERVICES)
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
def test_the_service_is_hardened(unit, name, value):
    assert directives(unit)[name] == [value]


@pytest.mark.parametrize("unit", [*SERVICES, "user/inferd.service"])
def test_system_calls_are_those_of_a_service_without_the_dangerous_ones(unit):
    allowed, *refused = directives(unit)["SystemCallFilter"]
    assert allowed == "@system-service"
    for group in ("@privileged", "@debug", "@module", "@mount", "@raw-io", "@swap"):
        assert any(each.startswith("~") and group in each for each in refused)


@pytest.mark.slow
def test_a_running_worker_is_in_its_sandbox(make_daemon):
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
    boxed = daemon.logged(msg="worker.boxed")
    assert [(each["seccomp"], each["is_open"]) for each in boxed] == [(True, False)]


@pytest.mark.parametrize("unit", SERVICES)
def test_workers_may_enter_a_sandbox_within_the_service(unit):
    allowed = directives(unit)["SystemCallFilter"][-1].split()
    calls = {"create_ruleset", "add_rule", "restrict_self"}
    assert {f"landlock_{each}" for each in calls} | {"seccomp"} == set(allowed)


@pytest.mark.parametrize("unit", SERVICES)
def test_the_service_runs_as_somebody_of_its_own(unit):
    [user] = directives(unit)["User"]
    assert user not in ("root", "0", "nobody")


@pytest.mark.parametrize("unit", SERVICES)
def test_the_directory_of_the_sockets_is_not_the_service_s(unit):
    assert "RuntimeDirectory" not in directives(unit)


@pytest.mark.parametrize("unit", sorted(path.name for path in UNITS.glob("*.socket")))
def test_a_socket_is_for_the_group_but_for_those_that_command(unit):
    found = directives(unit)
    [name] = found["FileDescriptorName"]
    group = {"admin": "root", "bridge_helper": "inferd-bridge"}.get(name, "inferd")
    assert found["SocketMode"] == ["0600" if name == "admin" else "0660"]
    assert found["SocketGroup"] == [group]
    assert found["DirectoryMode"] == ["0755"]


def test_a_drop_in_for_accelerators_allows_devices_generated_code_and_nothing_else():
    assert sorted(directives("gpu.conf")) == [
        *("DeviceAllow", "MemoryDenyWriteExecute"),
        *("PrivateDevices", "SupplementaryGroups"),
    ]
    assert sorted(directives("user/gpu.conf")) == [
        *("DevicePolicy", "MemoryDenyWriteExecute", "PrivateDevices", "ProtectClock")
    ]


def test_a_user_s_service_has_no_network_either():
    found = directives("user/inferd.service")
    assert found["RestrictAddressFamilies"] == ["AF_UNIX"]
    assert found["NoNewPrivileges"] == ["yes"]
