"""What a driver that compiles at run time may do in the real unit, with and without gpu.conf."""

import json
from typing import Final

import pytest

from tests.systemd.container import ROOT, Container, booted, missing, overlay, place

REASON = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.systemd,
    pytest.mark.skipif(bool(REASON), reason=f"no container: {REASON}"),
]

SCRATCH: Final = "/opt/compiling"
DROP_INS: Final = "/run/systemd/system/inferd.service.d"
PROGRAM: Final = """
import ctypes, errno, json, mmap, socket, sys

PAGE, PRIVATE = mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
ints = (ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *ints]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def generated_code():
    page = libc.mmap(None, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, PRIVATE, -1, 0)
    if libc.mprotect(page, PAGE, mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "mprotect")


def network():
    socket.socket(socket.AF_INET).close()


def file_of_the_system():
    open("/etc/written", "w").close()


def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


attempts = (generated_code, network, file_of_the_system)
json.dump({each.__name__: outcome(each) for each in attempts}, sys.stdout)
"""
RUN_IT: Final = f"""[Service]
Type=oneshot
Restart=no
SupplementaryGroups=
ExecStart=
ExecStopPost=
ExecStart=/usr/bin/python3 -P {SCRATCH}/program.py
StandardOutput=file:{SCRATCH}/said
StandardError=journal
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with overlay(tmp_path_factory.mktemp("machine")) as root:
        place(root)
        scratch = root / SCRATCH.lstrip("/")
        scratch.mkdir()
        (scratch / "program.py").write_text(PROGRAM)
        (scratch / "gpu.conf").write_text((ROOT / "systemd/gpu.conf").read_text())
        with booted(root) as container:
            yield container


def attempted(machine: Container, *, has_drop_in: bool) -> dict[str, str]:
    machine.run("rm", "-rf", DROP_INS, f"{SCRATCH}/said")
    machine.run("mkdir", "-p", DROP_INS)
    if has_drop_in:
        machine.run("cp", f"{SCRATCH}/gpu.conf", f"{DROP_INS}/gpu.conf")
    machine.run("sh", "-c", f"cat > {DROP_INS}/program.conf", stdin=RUN_IT)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "inferd", check=False)
    machine.run("systemctl", "reset-failed", "inferd", check=False)
    said = machine.run("cat", f"{SCRATCH}/said", check=False).stdout
    assert said, machine.run("journalctl", "-u", "inferd", "-n", "30").stdout
    return dict(json.loads(said))


@pytest.mark.parametrize(("has_drop_in", "outcome"), [(False, "EPERM"), (True, "done")])
def test_generated_code_runs_with_the_drop_in_alone_and_all_else_stays_denied(
    machine, has_drop_in, outcome
):
    assert attempted(machine, has_drop_in=has_drop_in) == {
        "generated_code": outcome,
        "network": "EAFNOSUPPORT",
        "file_of_the_system": "EROFS",
    }
