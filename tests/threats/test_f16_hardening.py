from pathlib import Path

import pytest

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


def test_the_service_runs_as_somebody_of_its_own():
    [user] = directives()["User"]
    assert user not in ("root", "0", "nobody")
