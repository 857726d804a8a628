import json
import os

import trio
import trio.testing

from inferd.limits import LOG_QUEUE_LINES
from inferd.server.log import LineSink
from tests.fakes.backend import ScriptedBackend
from tests.fakes.log import logged, pipe
from tests.fakes.serving import House

LONGEST_LINE_BYTES = 1024


def test_a_sink_that_nobody_reads_takes_bounded_memory_and_no_time():
    n_lines = LOG_QUEUE_LINES * 4
    with pipe() as (reading, writing):
        sink = LineSink(writing)
        for _ in range(n_lines):
            sink.write("x" * 100)
        assert 0 < sink._lines.qsize() <= LOG_QUEUE_LINES
        data = b""
        while sink._lines.qsize():
            data += os.read(reading, 100_000)
        sink.write("the end")
        while not data.endswith(b"the end\n"):
            data += os.read(reading, 100_000)
        sink.close()
    lines = data.splitlines()[:-1]
    reports = [json.loads(line) for line in lines if line.startswith(b"{")]
    assert {report["event"] for report in reports} == {"log.dropped"}
    n_dropped = sum(report["lines"] for report in reports)
    assert n_dropped > 0
    assert len(lines) - len(reports) + n_dropped == n_lines


async def test_a_request_is_one_line_however_much_is_in_it(monkeypatch, autojump_clock):
    with logged(monkeypatch) as log:
        async with House(ScriptedBackend()).opened() as house:
            async with house.connect() as client:
                await client.ask("i" * 100_000, text="t" * 100_000)
                await client.ask("\n{}" * 1000)
            await trio.testing.wait_all_tasks_blocked()
    assert [json.loads(line)["event"] for line in log] == ["request.finished"] * 2
    assert max(len(line) for line in log) < LONGEST_LINE_BYTES
