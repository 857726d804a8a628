"""What the daemon writes down, where to, and that nothing it writes to can hold it up."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.daemon.harness import (
    SERVE,
    Config,
    DaemonProcess,
    Frame,
    MakeDaemon,
    blocks,
    eventually,
    generate,
    mock,
    to_line,
)
from tests.daemon.users import (
    ANNA,
    SHARED_GROUP,
    connect_as,
    needs_root,
    open_to_all,
)
from tests.fakes.log import fill

pytestmark = pytest.mark.slow

SECRET: Final = "correct horse battery"
ENDLESS: Final = mock(tokens=[SECRET] * 10_000, token_delay_ms=10)
QUICK: Final[Config] = {"backend": [mock(tokens=[SECRET])]}
NARROW: Final[Config] = {
    "backend": [ENDLESS],
    "admission": {"max_active": 1, "max_queued": 0},
}


def parsed(path: Path) -> list[Frame]:
    return [dict(json.loads(line)) for line in path.read_text().splitlines()]


def whole(path: Path) -> list[Frame]:
    """Read the lines of a file in which some may be torn."""
    lines = path.read_text().splitlines()
    return [dict(json.loads(line)) for line in lines if line.endswith("}")]


def logs(daemon: DaemonProcess, text: str) -> bool:
    """Wait until a text is in the file, as far as there is time."""

    def is_there() -> bool:
        try:
            return text in daemon.log_file.read_text()
        except FileNotFoundError:  # not yet, or between two generations
            return False

    return eventually(is_there)


def n_lost(daemon: DaemonProcess, sink: str) -> int:
    with daemon.admin() as operator:
        text = operator.order("metrics")["text"]
    [found] = re.findall(rf'dropped_total{{sink="{sink}"}} (\S+)', text)
    return int(float(found))


def ends(lines: list[Frame], *ids: str) -> list[Frame]:
    found = {line.get("req_id"): line for line in lines}
    return [found[request_id] for request_id in ids]


# --- what is written --------------------------------------------------------------------


def visit(daemon: DaemonProcess) -> None:
    """Have requests end in every way, the last one by leaving."""
    daemon.ask(SECRET, id="done", max_tokens=2)
    with daemon.connect("infer.v2.sock") as client:
        client.ask(blocks(SECRET, id="done2", max_tokens=2))
    daemon.ask(SECRET, id="invalid", top_p=0)
    running = daemon.begin("left")
    daemon.ask(SECRET, id="full")
    with daemon.connect() as client:
        client.ask({"messages": SECRET})
    running.close()
    assert logs(daemon, '"left"')


def test_each_request_is_one_line_with_the_wires_names_codes_and_peer(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon(NARROW).start()
    visit(daemon)
    lines = parsed(daemon.log_file)
    done, done2, *others = ends(lines, "done", "done2", "invalid", "full", "left")
    assert [line["msg"] for line in (done, done2)] == [
        "request_done",
        "v2_request_done",
    ]
    assert (done["stop_reason"], done["completion_tokens"]) == ("length", 2)
    assert (done2["wire_version"], done2["output_tokens"]) == ("v2", 2)
    assert [(line["msg"], line.get("code")) for line in others] == [
        ("request_refused", "invalid_request"),
        ("request_refused", "queue_full"),
        ("request_abandoned", None),
    ]
    for line in (done, done2, *others):
        assert (line["component"], line["peer_uid"]) == ("activity", os.getuid())
        assert line["total_ms"] >= line["queued_ms"] >= 0
        assert [each.get("req_id") for each in lines].count(line["req_id"]) == 1
    [ready] = [each for each in lines if each["msg"] == "daemon.ready"]
    assert ready["level"] == "info"


def test_stderr_and_the_file_have_the_same_lines_and_no_content(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon(NARROW, environ={"JOURNAL_STREAM": "1:2"}).start()
    visit(daemon)
    assert daemon.stop() == 0
    assert daemon.log_file.read_text() == daemon.stderr()
    assert SECRET not in daemon.stderr()
    assert daemon.log_file.stat().st_mode & 0o777 == 0o600
    assert daemon.log_file.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_that_is_not_wanted_is_not_there(make_daemon: MakeDaemon):
    daemon = make_daemon({**QUICK, "log": {"file": False}}).start()
    daemon.ask()
    assert not daemon.log_file.parent.exists()


def test_a_start_that_fails_is_in_the_file_with_the_reason_that_stderr_has(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": [mock(die_at_load=True)]})
    refusal = daemon.refusal()
    last = parsed(daemon.log_file)[-1]
    assert (last["level"], last["msg"]) == ("error", "daemon.failed")
    assert refusal == f"error: {last['reason']}"


def test_to_journald_a_start_that_fails_is_one_line_and_an_error(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": [mock(die_at_load=True)]})
    daemon._log.touch()
    info = daemon._log.stat()
    daemon._environ["JOURNAL_STREAM"] = f"{info.st_dev}:{info.st_ino}"
    priority, _, line = daemon.refusal().partition(">")
    assert priority == "<3"
    assert json.loads(line)["msg"] == "daemon.failed"
    assert daemon.log_file.read_text() == f"{line}\n"


# --- rotation and kills -----------------------------------------------------------------


def test_a_file_rotates_under_load_and_no_line_is_lost(make_daemon: MakeDaemon):
    log = {"max_bytes": 65_536, "generations": 3}
    daemon = make_daemon({**QUICK, "log": log}).start()
    with daemon.connect() as client:
        for n in range(600):
            client.ask(generate(id=f"r{n}"))
    last = '"req_id":"r599"'
    assert logs(daemon, last)
    names = ("inferd.ndjson.3", "inferd.ndjson.2", "inferd.ndjson.1", "inferd.ndjson")
    files = [daemon.log_file.with_name(name) for name in names]
    present = [each for each in files if each.exists()]
    assert len(present) >= 3
    assert max(each.stat().st_size for each in present) <= 65_536
    lines = [line for each in present for line in parsed(each)]
    ids = [line["req_id"] for line in lines if line["msg"] == "request_done"]
    assert ids == [f"r{n}" for n in range(600)][-len(ids) :]
    assert n_lost(daemon, "file") == 0


def test_a_line_torn_by_a_kill_spoils_none_of_the_next_daemons(make_daemon: MakeDaemon):
    first = make_daemon(QUICK).start()
    first.ask(id="before")
    assert logs(first, "before")
    first.send_signal(signal.SIGKILL)
    first.wait()
    with first.log_file.open("a") as file:
        file.write('{"t":"2026-11-')
    directory = {"INFERD_LOG_DIR": str(first.log_file.parent)}
    second = make_daemon(QUICK, environ=directory).start()
    second.ask(id="after")
    assert logs(first, '"after"')
    torn = [x for x in first.log_file.read_text().splitlines() if not x.endswith("}")]
    assert torn == ['{"t":"2026-11-']
    assert ends(whole(first.log_file), "before", "after")


def test_a_directory_that_vanishes_or_is_taken_costs_lines_alone(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon(QUICK).start()
    directory = daemon.log_file.parent
    assert logs(daemon, "daemon.ready")
    shutil.rmtree(directory)
    assert daemon.ask(id="vanished")[-1]["type"] == "done"
    assert logs(daemon, '"vanished"')
    shutil.rmtree(directory)
    directory.touch()
    assert daemon.ask(id="taken")[-1]["type"] == "done"
    assert eventually(lambda: "log.failed" in daemon.stderr())
    directory.unlink()
    assert logs(daemon, "\n")
    assert parsed(daemon.log_file)[0]["msg"] == "log.dropped"
    assert n_lost(daemon, "file") >= 1


# --- full disks, stalled pipes ------------------------------------------------------------


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """Mount a file system of 256 KiB there while inside."""
    directory.mkdir(mode=0o700)
    options = ["-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs"]
    subprocess.run(["mount", *options, directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def fill_disk(directory: Path) -> Path:
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 512):
                pass
        except OSError:
            return ballast
    raise AssertionError


@needs_root  # to mount a small tmpfs
def test_a_full_disk_costs_lines_that_are_counted_and_nothing_else(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon(QUICK)
    with small_disk(daemon.log_file.parent):
        daemon.start()
        ballast = fill_disk(daemon.log_file.parent)
        for n in range(50):
            assert daemon.ask(id=f"full{n}")[-1]["type"] == "done"
        assert eventually(lambda: n_lost(daemon, "file") > 20)
        ballast.unlink()
        assert daemon.ask(id="free")[-1]["type"] == "done"
        assert logs(daemon, '"free"')
        lines = whole(daemon.log_file)
    told = [line["lines"] for line in lines if line["msg"] == "log.dropped"]
    assert sum(told) == n_lost(daemon, "file") > 20
    assert ends(lines, "free")
    assert "No space left on device" in daemon.stderr()
    assert daemon.stderr().count("log.failed") == 1


class Piped(DaemonProcess):
    """Its stderr is a pipe that is full before it starts, and read when it is told so."""

    def spawn(self) -> None:
        reading, writing = os.pipe()
        self.reading = reading
        self.n_filled = fill(writing)
        self._process = subprocess.Popen(
            [*SERVE, str(self.config_file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=writing,
            env=self._environ,
        )
        os.close(writing)

    def drain(self) -> list[Frame]:
        """Read the pipe to its end, which is that of the daemon."""
        with os.fdopen(self.reading, "rb") as file:
            text = file.read()[self.n_filled :]
        return [dict(json.loads(line)) for line in text.splitlines()]


@needs_root
def test_a_stderr_that_nobody_reads_holds_nobody_up_and_is_told_what_it_missed():
    daemon = Piped({**QUICK, "listen": {"group": SHARED_GROUP}})
    try:
        open_to_all(daemon).start()
        for number in range(12):  # one user alone may not cause so many lines
            with connect_as(daemon, ANNA + number) as client:
                client.pour([to_line({"messages": []}) * 600])
                refusals = [client.frame() for _ in range(600)]
                assert refusals[-1]["code"] == "invalid_request"
        assert daemon.ask(id="last")[-1]["type"] == "done"
        assert logs(daemon, '"last"')
        n_missed = n_lost(daemon, "stderr")
        assert n_missed > 100
        daemon.send_signal(signal.SIGTERM)
        lines = daemon.drain()
    finally:
        daemon.finish()
    told = [line["lines"] for line in lines if line["msg"] == "log.dropped"]
    assert sum(told) >= n_missed
    assert "daemon.ready" in [line["msg"] for line in lines]


def test_a_stderr_that_was_closed_leaves_the_file(make_daemon: MakeDaemon):
    daemon = make_daemon(QUICK)
    shell = ["sh", "-c", 'exec "$@" 2>&-', "sh", *SERVE, str(daemon.config_file)]
    with subprocess.Popen(shell, env=daemon._environ) as process:
        try:
            daemon.admin().until("ready")
            assert daemon.ask(id="closed")[-1]["type"] == "done"
        finally:
            process.terminate()
    assert process.returncode == 0
    assert ends(parsed(daemon.log_file), "closed")
