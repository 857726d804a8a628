from pathlib import Path

from inferd.bridge.identity.token_file import BRIDGE_GROUP, SYSTEM_TOKENS
from inferd.surfaces import ADMIN_MODE

UNITS = Path(__file__).parents[2] / "systemd"


def settings(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (UNITS / unit).read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_a_bridge_that_is_taken_over_has_the_inference_sockets_and_little_else():
    bridge, daemon = settings("inferd-bridge.service"), settings("inferd.service")
    assert bridge["User"] == bridge["Group"] == [BRIDGE_GROUP] != daemon["User"]
    assert bridge["SupplementaryGroups"] == settings("inferd.socket")["SocketGroup"]
    hidden = bridge["InaccessiblePaths"][0].replace("-/", "/").split()
    for place in ("StateDirectory", "LogsDirectory"):
        folder = {"StateDirectory": "/var/lib", "LogsDirectory": "/var/log"}[place]
        assert f"{folder}/{daemon[place][0].partition('/')[0]}" in hidden
    admin = settings("inferd-admin.socket")
    assert (admin["SocketMode"], admin["SocketGroup"]) == (
        [f"{ADMIN_MODE:04o}"],
        ["root"],
    )
    assert bridge["Environment"] == [f"INFERD_BRIDGE_TOKENS={SYSTEM_TOKENS}"]
    assert bridge["ProtectSystem"] == ["strict"]
    assert "ReadWritePaths" not in bridge
    for unit in ("inferd-bridge.service", "inferd-bridge.socket"):
        assert settings(unit)["IPAddressDeny"] == ["any"]
        assert settings(unit)["IPAddressAllow"] == ["localhost"]


def test_it_is_confined_as_the_daemon_is_but_for_what_it_needs():
    bridge, daemon = settings("inferd-bridge.service"), settings("inferd.service")
    prefixes = ("Protect", "Private", "Restrict", "NoNew", "NoExec", "Memory", "Lock")
    own = {"PrivateNetwork", "RestrictAddressFamilies"}
    for name in daemon:
        if name.startswith(prefixes) and name not in own:
            assert bridge[name] == daemon[name]
    assert set(daemon["SystemCallFilter"]) == set(bridge["SystemCallFilter"])
