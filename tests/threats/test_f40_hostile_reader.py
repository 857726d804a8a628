import json
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.harness import DaemonProcess, MakeDaemon, generate, mock
from tests.fakes.in_decoder import run_in_decoder

pytestmark = pytest.mark.slow

ESCAPES = Path(__file__).parents[1] / "fakes/escapes.py"
LATER = "start a thread by a newer call"
N_ATTEMPTS = 132
LARGE_CHARS = 200_000


@contextmanager
def victim() -> Iterator[str]:
    """Start a process that others act on."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield str(process.pid)
        finally:
            process.kill()


def state(path: Path) -> tuple[int, ...]:
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    return (mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def test_nothing_that_was_found_to_lead_out_does_so_where_large_lines_are_read(
    tmp_path,
):
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "private/secret").write_text("secret")
    (tmp_path / "own").write_text("own")
    paths = [tmp_path, tmp_path / "own", tmp_path / "private/secret"]
    before = [state(path) for path in paths]
    with victim() as pid, (tmp_path / "own").open("r+b") as own:
        found = json.loads(run_in_decoder(ESCAPES, tmp_path, pid, stdin=own.fileno()))
    assert len(found) == N_ATTEMPTS
    assert found.pop(LATER) == "ENOSYS"
    assert {name: error for name, error in found.items() if error != "EPERM"} == {}
    assert [state(path) for path in paths] == before


def readers(daemon: DaemonProcess) -> list[int]:
    return [
        pid
        for pid, command in daemon.processes().items()
        if b"\0inferd.line_decoder\0" in command
    ]


def n_filters(process: str | int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    [count] = [line.split()[1] for line in lines if line.startswith("Seccomp_filters")]
    return int(count)


def test_what_reads_a_daemons_large_lines_is_held_like_that(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    frames = daemon.connect().ask(generate("x" * LARGE_CHARS))
    assert frames[-1]["type"] == "done"
    [reader] = readers(daemon)
    assert n_filters(reader) == n_filters("self") + 1
    [boxed] = daemon.logged(msg="decoder.boxed")
    assert (boxed["seccomp"], boxed["missing"]) == (True, [])
