"""The units, judged by systemd's own tools and against each other."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from inferd.limits.bridge import HTTP_DRAIN_S
from inferd.limits.engine import MAX_THREADS
from inferd.management.serve import HELPER
from inferd.surfaces import ADMIN_MODE, INFERENCE_MODE, SURFACES

ROOT = Path(__file__).resolve().parents[2] / "systemd"
SOCKETS = ("inferd", "inferd-v2", "inferd-embed", "inferd-rerank", "inferd-admin")
SERVICES = ("inferd.service", "inferd@.service")


def values(unit: Path, name: str) -> list[str]:
    """Give what a directive is set to, each time."""
    lines = unit.read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


def copy(source: Path, target: Path) -> list[Path]:
    """Copy units, with a command that is there on every machine."""
    for unit in (*source.glob("*.service"), *source.glob("*.socket")):
        text = unit.read_text().replace("/opt/inferd/current/bin/inferd", "/bin/true")
        (target / unit.name).write_text(text)
    return sorted(target.iterdir())


@pytest.mark.parametrize(("manager", "folder"), [("--system", "."), ("--user", "user")])
def test_systemd_has_nothing_to_say_about_the_units(manager, folder, tmp_path):
    units = copy(ROOT / folder, tmp_path)
    assert len(units) == (16 if folder == "." else 10)
    result = subprocess.run(
        ["systemd-analyze", manager, "verify", *units],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("service", "threshold", "passes"),
    [
        *((service, "5", True) for service in SERVICES),
        *((service, "3", False) for service in SERVICES),
        (
            "inferd-bridge.service",
            "12",
            True,
        ),  # half of it is the network that it serves
        ("inferd-bridge.service", "11", False),
    ],
)
def test_a_service_is_exposed_by_no_more_than_its_figure(
    service, threshold, passes, tmp_path
):
    unit = tmp_path / service.replace("@", "@x")
    shutil.copy(ROOT / service, unit)
    result = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=true",
            f"--threshold={threshold}",
            unit,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode == 0) is passes, result.stdout[-400:]


def test_a_user_s_service_is_exposed_by_less_than_a_point(tmp_path):
    unit = tmp_path / "inferd.service"
    shutil.copy(ROOT / "user" / unit.name, unit)
    command = ["systemd-analyze", "--user", "security", "--offline=true", "--no-pager"]
    result = subprocess.run(
        [*command, str(unit)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(
        r"Overall exposure level for inferd.service: (\S+)", result.stdout
    )
    assert found is not None, result.stderr
    assert float(found[1]) < 1.0


def test_the_drop_in_without_namespaces_takes_all_back_that_needs_them():
    """But for what no user's manager refuses, and the devices that a drop-in opens."""
    unit, drop_in = ROOT / "user/inferd.service", ROOT / "user/no-namespaces.conf"
    _, _, below = unit.read_text().partition("# everything below in this section")
    section, _, _ = below.partition("\n\n")
    names = re.findall(r"^(\w+)=", section, re.MULTILINE)
    assert len(names) == 15
    for name in {*names, "PrivateNetwork", "CapabilityBoundingSet"} - {"DevicePolicy"}:
        assert len(values(drop_in, name)) == 1


@pytest.mark.parametrize("folder", [".", "user"])
def test_each_socket_of_the_daemon_has_a_unit_that_names_it(folder):
    found = {}
    for name in SOCKETS:
        unit = ROOT / folder / f"{name}.socket"
        [path], [called] = (
            values(unit, "ListenStream"),
            values(unit, "FileDescriptorName"),
        )
        found[called] = path.rpartition("/")[2]
        mode = ADMIN_MODE if called == "admin" else INFERENCE_MODE
        assert values(unit, "SocketMode") == [f"{mode:04o}"]
    assert found == {each.fd_name: each.socket for each in SURFACES}


@pytest.mark.parametrize("service", [*SERVICES, "user/inferd.service"])
def test_a_service_wants_all_sockets_and_none_of_its_own_directory(service):
    unit = ROOT / service
    at = "@%i" if "@" in service else ""
    sockets = " ".join(f"{name}{at}.socket" for name in SOCKETS)
    assert values(unit, "Sockets") == [sockets]
    assert values(unit, "Requires") == [sockets]
    assert values(unit, "After")[0].endswith(sockets)
    assert values(unit, "RuntimeDirectory") == []
    assert values(unit, "StartLimitIntervalSec") == ["0"]


@pytest.mark.parametrize(
    ("service", "directory"),
    [
        ("inferd.service", "/run/inferd"),
        ("inferd@.service", "/run/inferd/%i"),
        ("user/inferd.service", "%t/inferd"),
    ],
)
def test_a_service_is_reloaded_by_the_command_that_knows_the_outcome(
    service, directory
):
    root = "" if service.startswith("user") else "+"
    [start], [reload] = (
        values(ROOT / service, "ExecStart"),
        values(ROOT / service, "ExecReload"),
    )
    program = start.removesuffix(" serve")
    assert reload == f"{root}{program} reload --directory {directory}"


@pytest.mark.parametrize("folder", [".", "user"])
def test_the_bridge_has_longer_to_stop_than_to_drain_and_takes_no_namespace_of_users(
    folder,
):
    unit = ROOT / folder / "inferd-bridge.service"
    [stop] = values(unit, "TimeoutStopSec")
    assert int(stop) > HTTP_DRAIN_S
    assert values(unit, "PrivateUsers") in ([], ["no"])
    assert "AF_NETLINK" in values(unit, "RestrictAddressFamilies")[0]


@pytest.mark.parametrize("service", [*SERVICES, "user/inferd.service"])
def test_a_service_has_room_for_the_threads_of_some_backends(service):
    [most] = values(ROOT / service, "TasksMax")
    assert int(most) > 4 * MAX_THREADS


def generic(text: str) -> list[str]:
    """Take out what makes an instance of a unit."""
    text = text.replace("@%i.", ".").replace("/run/inferd/%i", "/run/inferd")
    text = text.replace("inferd/state/%i", "inferd/state")
    lines = text.replace("inferd %i", "inferd").replace("inferd/%i", "inferd")
    return [line for line in lines.splitlines() if "INFERD_CONFIG" not in line]


@pytest.mark.parametrize(
    "name", [*(f"{each}.socket" for each in SOCKETS), "inferd.service"]
)
def test_an_instance_is_as_the_service_is(name):
    stem, _, kind = name.rpartition(".")
    instance = (ROOT / f"{stem}@.{kind}").read_text()
    assert generic(instance) == (ROOT / name).read_text().splitlines()


SYSTEM_ALONE = ("SocketGroup=", "ExecStartPost=", "# The directory belongs to root")


@pytest.mark.parametrize("name", SOCKETS)
def test_a_user_s_socket_is_as_the_system_s_in_another_place(name):
    system = (ROOT / f"{name}.socket").read_text().replace("/run/", "%t/")
    wanted = [
        line.replace("DirectoryMode=0755", "DirectoryMode=0700")
        for line in system.splitlines()
        if not line.startswith(SYSTEM_ALONE)
    ]
    assert (ROOT / "user" / f"{name}.socket").read_text().splitlines() == wanted


def test_the_helpers_socket_is_for_the_bridge_and_its_store_the_only_place_to_write():
    service, sock = (
        ROOT / f"inferd-bridge-helper.{kind}" for kind in ("service", "socket")
    )
    assert values(sock, "SocketGroup") == values(
        ROOT / "inferd-bridge.service", "Group"
    )
    assert values(sock, "SocketMode") == ["0660"]
    assert values(sock, "FileDescriptorName") == [HELPER.fd_name]
    assert values(sock, "ListenStream") == [f"/run/inferd/{HELPER.socket}"]
    [store] = values(service, "ReadWritePaths")
    assert values(service, "Environment") == [f"INFERD_MODELS={store}"]
    assert values(service, "StateDirectory") == [store.removeprefix("/var/lib/")]
    assert values(service, "ProtectSystem") == ["strict"]
    assert "CAP_SYS_ADMIN" not in values(service, "CapabilityBoundingSet")[0]
