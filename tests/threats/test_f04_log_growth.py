import json
import os

import pytest
import trio
import trio.testing

from inferd.config.settings import LogSettings
from inferd.limits.log import LOG_BURST_LINES, LOG_QUEUE_LINES
from inferd.server.telemetry.log_file import LogFile
from inferd.service.log_writer import BackgroundWriter, FdWriter
from tests.daemon.harness import MakeDaemon, mock
from tests.fakes.backend import ScriptedBackend
from tests.fakes.log import logged, pipe
from tests.fakes.serving import LocalServer

LONGEST_LINE_BYTES = 1024


def report(n_lines: int) -> bytes:
    return b'{"lines": %d}\n' % n_lines


def test_a_sink_that_nobody_reads_takes_bounded_memory_and_no_time():
    n_lines = LOG_QUEUE_LINES * 4
    with pipe() as (reading, writing):
        sink = BackgroundWriter(FdWriter(writing), report=report)
        for _ in range(n_lines):
            sink.write(b"x" * 100 + b"\n")
        assert 0 < sink._lines.qsize() <= LOG_QUEUE_LINES
        data = b""
        while sink._lines.qsize():
            data += os.read(reading, 100_000)
        sink.write(b"the end\n")
        while not data.endswith(b"the end\n"):
            data += os.read(reading, 100_000)
        sink.close()
    lines = data.splitlines()[:-1]
    reports = [json.loads(line) for line in lines if line.startswith(b"{")]
    n_dropped = sum(each["lines"] for each in reports)
    assert n_dropped > 0
    assert len(lines) - len(reports) + n_dropped == n_lines


@pytest.mark.slow
def test_a_user_who_floods_pushes_no_others_lines_out(make_daemon: MakeDaemon):
    n_requests = 4 * LOG_BURST_LINES
    daemon = make_daemon({"backend": [mock()]}).start()
    with daemon.connect() as hog:
        for _ in range(n_requests):
            [refusal] = hog.ask({"id": "r", "messages": []})
            assert refusal["code"] == "invalid_request"
    assert daemon.ask()[-1]["type"] == "done"
    refusals = daemon.logged(msg="request_refused")
    assert LOG_BURST_LINES / 2 < len(refusals) < n_requests / 2
    assert daemon.logged(msg="request_done")


async def test_a_request_is_one_line_however_much_is_in_it(monkeypatch, autojump_clock):
    with logged(monkeypatch) as log:
        async with LocalServer(ScriptedBackend()).opened() as server:
            async with server.connect() as client:
                await client.ask("i" * 100_000, text="t" * 100_000)
                await client.ask("\n{}" * 1000)
            await trio.testing.wait_all_tasks_blocked()
    names = [json.loads(line)["msg"] for line in log]
    assert names == ["connection_accepted", *["request_done"] * 2]
    assert max(len(line) for line in log) < LONGEST_LINE_BYTES


def test_the_file_takes_no_more_room_than_it_may(tmp_path):
    path = tmp_path / "logs" / "log"
    file = LogFile(path, max_bytes=10_000, generations=3)
    for n in range(1000):
        file.write([b"%0200d\n" % n])
    file.close()
    sizes = {each.name: each.stat().st_size for each in path.parent.iterdir()}
    assert sorted(sizes) == ["log", "log.1", "log.2", "log.3"]
    assert max(sizes.values()) <= 10_000
    assert LogSettings().max_bytes * (1 + LogSettings().generations) == 64 * 2**20
