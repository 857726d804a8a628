"""The sandbox of a serving worker inside the real unit, call by call."""

import errno
import json
import platform
import shutil
from pathlib import Path

import pytest

from inferd.sandbox import bpf
from inferd.sandbox.seccomp import ENOSYS_CALLS
from inferd.sandbox.syscalls import MACHINES, syscall_numbers
from inferd.worker.sandbox.profiles import SERVING, allow_own_signals
from tests.fakes import each_call
from tests.fakes.bpf import verdict
from tests.fakes.calling import answers
from tests.systemd.container import Container, booted, missing, overlay, place

REASON = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.systemd,
    pytest.mark.skipif(bool(REASON), reason=f"no container: {REASON}"),
]

FAKES = Path(each_call.__file__).parent
PROGRAMS = ("each_call.py", "escapes.py")
DROP_IN = "/run/systemd/system/inferd.service.d/audit.conf"
AUDIT = """[Service]
Type=oneshot
Restart=no
ExecStart=
ExecStopPost=
ExecStart=/usr/bin/python3 -P -m inferd.worker.sandbox /opt/audit/{arguments}
StandardOutput=file:/opt/audit/said
StandardError=journal
"""
UNFILTERED = {"uretprobe", "uprobe"}
"""The kernel asks no filter about these."""


STATE = "/var/lib/inferd/state"
"""What the unit lets its processes write to."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with overlay(tmp_path_factory.mktemp("machine")) as root:
        place(root)
        (root / "opt/audit").mkdir()
        for name in PROGRAMS:
            shutil.copy(FAKES / name, root / "opt/audit")
        with booted(root) as container:
            yield container


def audited(machine: Container, arguments: str) -> str:
    """Run a script in the sandbox, with the unit's user and all its properties."""
    machine.run("rm", "-f", "/opt/audit/said")
    machine.run("mkdir", "-p", DROP_IN.rpartition("/")[0])
    machine.run("sh", "-c", f"cat > {DROP_IN}", stdin=AUDIT.format(arguments=arguments))
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "inferd", check=False)
    machine.run("systemctl", "reset-failed", "inferd", check=False)
    said = machine.run("cat", "/opt/audit/said").stdout
    assert said, machine.run("journalctl", "-u", "inferd", "-n", "30").stdout
    return said


def test_every_call_that_is_on_no_list_fails_with_eperm_in_the_unit(machine):
    ours = MACHINES[platform.machine()]
    table = syscall_numbers(ours)
    rules = allow_own_signals(2**22, SERVING)
    code = bpf.build_filter(ours.architecture, table, rules, ENOSYS_CALLS)
    left_out = {"wait4", *UNFILTERED}
    asked = [number for name, number in table.items() if name not in left_out]
    found = answers(
        lambda left: audited(machine, f'each_call.py "" {" ".join(left)}'),
        [*asked, *range(470, 500)],
    )
    told = {
        number: verdict(code, ours.architecture, number, each_call.ARGUMENTS)
        for number in found
    }
    refused = {number for number in found if told[number] == bpf.REFUSE_EPERM}
    assert len(refused) > 300
    assert {number: found[number] for number in refused} == dict.fromkeys(
        refused, errno.EPERM
    )
    names = {number: name for name, number in table.items()}
    ended = {names[number] for number in found if found[number] is None}
    assert ended == {"exit", "exit_group", "rt_sigreturn"}


def test_no_way_out_that_was_found_is_one_in_the_unit(machine):
    machine.run("mkdir", "-p", f"{STATE}/private")
    machine.run("touch", f"{STATE}/own", f"{STATE}/private/secret")
    machine.run("chown", "-R", "inferd:inferd", STATE)
    killed = "call by another table"  # by the unit, whoever in it makes one
    found = json.loads(audited(machine, f'escapes.py {STATE} 1 --but "{killed}"'))
    assert len(found) > 120
    assert {*found.values()} == {"EPERM", "ENOSYS"}
    assert [name for name, error in found.items() if error == "ENOSYS"] == [
        "start a thread by a newer call"
    ]
