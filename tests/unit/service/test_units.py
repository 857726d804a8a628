from pathlib import Path

import pytest

from inferd.paths import SYSTEM_DIRECTORY
from inferd.service import units
from inferd.service.lock import LockHolder, LockState
from inferd.service.units import (
    SYSTEM,
    SystemdService,
    UnknownInstanceError,
    installed_services,
    instance,
    service_of,
    slices_of,
    stopped_service,
    unit_state,
)
from tests.cases import each_case

SYSTEMCTL = """#!/bin/sh
echo "$@" >> {calls}
case "$*" in
  *list-units*) echo "inferd@a.socket loaded active listening inferd a: text";;
  *.socket) echo "ActiveState={listening}";;
  *-inner.slice) echo "MemoryMax=3000";;
  *.slice) echo "MemoryMax=infinity";;
  *) cat <<END
LoadState=loaded
ActiveState={active}
SubState=dead
Result=exit-code
ExecMainStatus=2
StatusText=did not start: no such file
NRestarts=0
FragmentPath=/etc/systemd/system/inferd.service
DropInPaths=/etc/a.conf /etc/b.conf
NeedDaemonReload=yes
MemoryMax=4000
Slice=outer-inner.slice
END
  ;;
esac
"""


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """A systemd with an answer of its own."""

    def answers(active="failed", listening="active"):
        program = tmp_path / "bin" / "systemctl"
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            SYSTEMCTL.format(
                calls=tmp_path / "calls", active=active, listening=listening
            )
        )
        program.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(units, "_BOOTED", tmp_path)
    answers()
    return answers


@each_case(
    ("directory", "unit"),
    [
        ("/run/inferd", "inferd.service"),
        ("/run/inferd/second", "inferd@second.service"),
        ("/run/user/7/inferd", "inferd.service"),
        ("/run/inferd/a b", None),
        ("/srv/inferd", None),
        ("/run/inferd/a/b", None),
    ],
)
def test_a_directory_has_the_service_of_the_units(directory, unit):
    found = service_of(Path(directory), {"XDG_RUNTIME_DIR": "/run/user/7"})
    assert (found.unit if found else None) == unit


def test_a_service_has_the_commands_that_are_typed():
    mine = SystemdService("inferd.service", Path("/x"), None, is_user=True)
    assert mine.systemctl("start") == "systemctl --user start inferd.service"
    assert SYSTEM.systemctl("start") == "sudo systemctl start inferd.service"
    assert instance("b").socket_unit == "inferd@b.socket"
    assert instance("b").journal == "journalctl -u inferd@b -n 20"
    assert mine.journal == "journalctl --user -u inferd -n 20"


@each_case("name", ["", "../x", "a b", "a/b", "-x", "x" * 65])
def test_a_name_that_no_unit_has_is_refused(name):
    with pytest.raises(UnknownInstanceError, match="name of an instance"):
        instance(name)


def test_systemd_is_asked_for_the_state(systemd, tmp_path):
    state = unit_state(SYSTEM)
    assert state is not None
    assert (state.active, state.exit_status, state.is_listening) == (
        "failed",
        "2",
        True,
    )
    assert state.status == "did not start: no such file"
    assert state.drop_ins == ("/etc/a.conf", "/etc/b.conf")
    assert state.needs_reload
    assert "--user" not in (tmp_path / "calls").read_text()


def test_a_user_s_systemd_is_asked_for_a_user_s_service(systemd, tmp_path):
    unit_state(SYSTEM._replace(is_user=True))
    calls = (tmp_path / "calls").read_text().splitlines()
    assert all(call.startswith("--user ") for call in calls)


def test_without_systemd_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(units, "_BOOTED", tmp_path / "missing")
    assert unit_state(SYSTEM) is None


def test_instances_are_those_that_are_enabled_or_loaded(systemd, tmp_path):
    assert installed_services(tmp_path) == []
    (tmp_path / "inferd.service").touch()
    wants = tmp_path / "sockets.target.wants"
    wants.mkdir()
    (wants / "inferd-v2@b.socket").touch()
    (wants / "inferd@b.socket").touch()
    found = [each.unit for each in installed_services(tmp_path)]
    assert found == ["inferd.service", "inferd@a.service", "inferd@b.service"]


@pytest.mark.parametrize(
    ("states", "is_found"),
    [
        (("inactive", "active"), True),
        (("failed", "active"), True),
        (("active", "active"), False),
        (("activating", "active"), False),
        (("inactive", "inactive"), False),
    ],
)
def test_a_service_that_connecting_would_start_is_found(
    systemd, short_dir, monkeypatch, states, is_found
):
    systemd(*states)
    monkeypatch.setattr(units, "service_of", lambda _: SYSTEM)
    (short_dir / "admin.sock").touch()
    found = stopped_service([short_dir / "missing", short_dir])
    assert (found is not None) is is_found


def test_a_held_lock_is_a_daemon_that_runs(systemd, short_dir, monkeypatch):
    monkeypatch.setattr(units, "service_of", lambda _: SYSTEM)
    (short_dir / "admin.sock").touch()
    held = LockState.HELD
    monkeypatch.setattr(units, "lock_holder", lambda _: LockHolder(held))
    assert stopped_service([short_dir]) is None


def test_a_directory_of_no_service_is_connected_to(systemd, short_dir):
    (short_dir / "admin.sock").touch()
    assert stopped_service([short_dir]) is None


def test_the_machine_s_service_is_where_clients_look():
    assert SYSTEM.directory == SYSTEM_DIRECTORY


def test_a_service_has_the_least_memory_of_the_slices_above_it(systemd):
    state = unit_state(SYSTEM)
    assert state is not None
    assert (state.memory_unit, state.max_memory) == ("outer-inner.slice", 3000)


@pytest.mark.parametrize(
    ("name", "above"),
    [
        ("a-b.slice", ["a-b.slice", "a.slice", "-.slice"]),
        ("-.slice", ["-.slice"]),
        ("", []),
    ],
)
def test_the_name_of_a_slice_has_those_above_it(name, above):
    assert slices_of(name) == above
