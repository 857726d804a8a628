import errno
import os
import threading

import pytest

from inferd.server.telemetry.log_writer import STDERR, BackgroundWriter, FdWriter
from tests.daemon.harness import eventually
from tests.fakes.log import fill, lines_of, pipe
from tests.fakes.writer import ScriptedWriter

DROPPED = b"dropped %d\n"


def report(n_lines: int) -> bytes:
    return DROPPED % n_lines


@pytest.fixture
def writer() -> ScriptedWriter:
    return ScriptedWriter()


# --- a sink -----------------------------------------------------------------------------


def test_lines_are_written_in_order_before_the_sink_is_closed(writer):
    sink = BackgroundWriter(writer, report=report)
    lines = [b"line %d\n" % n for n in range(100)]
    for line in lines:
        sink.write(line)
    sink.close()
    assert writer.lines == lines
    assert writer.is_closed
    assert "log" not in [thread.name for thread in threading.enumerate()]


def test_a_stalled_sink_blocks_nothing_and_reports_lost_lines(writer, monkeypatch):
    monkeypatch.setattr("inferd.server.telemetry.log_writer.LOG_QUEUE_LINES", 8)
    lost: list[None] = []
    writer.may_write.clear()
    sink = BackgroundWriter(writer, report=report, on_loss=lambda: lost.append(None))
    for _ in range(30):  # at most one is with the writer and 8 are in the queue
        sink.write(b"line\n")
    writer.may_write.set()
    sink.close()
    n_written = writer.lines.count(b"line\n")
    assert len(lost) == 30 - n_written >= 21
    assert [each for each in writer.lines if each != b"line\n"] == [report(len(lost))]


def test_a_sink_that_stays_stalled_can_be_closed(writer, monkeypatch):
    monkeypatch.setattr("inferd.server.telemetry.log_writer.FLUSH_S", 0.01)
    monkeypatch.setattr("inferd.server.telemetry.log_writer.LOG_QUEUE_LINES", 2)
    writer.may_write.clear()
    sink = BackgroundWriter(writer, report=report)
    for _ in range(10):
        sink.write(b"line\n")
    sink.close()
    assert not writer.lines
    monkeypatch.undo()
    writer.may_write.set()
    sink.close()
    assert writer.is_closed  # by its thread, which ends before the test does


def test_a_failing_sink_loses_lines_and_reports_them_once_it_works(writer):
    lost = threading.Semaphore(0)
    sink = BackgroundWriter(writer, report=report, on_loss=lost.release)
    writer.errno = errno.ENOSPC
    for _ in range(3):
        sink.write(b"lost\n")
    for _ in range(3):
        lost.acquire()
    writer.errno = None
    sink.write(b"kept\n")
    sink.close()
    assert writer.lines == [report(3), b"kept\n"]


def test_lost_lines_are_reported_without_another_line(writer, monkeypatch):
    monkeypatch.setattr("inferd.server.telemetry.log_writer.RETRY_S", 0.001)
    lost = threading.Event()
    sink = BackgroundWriter(writer, report=report, on_loss=lost.set)
    writer.errno = errno.EIO
    sink.write(b"lost\n")
    lost.wait()
    writer.errno = None
    assert eventually(lambda: bool(writer.lines))
    sink.close()
    assert writer.lines == [report(1)]


def test_a_repeated_failure_is_reported_once(writer):
    complaints: list[OSError] = []
    sink = BackgroundWriter(writer, report=report, on_failure=complaints.append)
    writer.fails_at = {0, 3, 6}
    for _ in range(6):
        sink.write(b"line\n")
    sink.close()
    assert writer.lines == [report(1), b"line\n"] * 3
    assert [str(each) for each in complaints] == ["[Errno 5] call 0"]


# --- a descriptor -----------------------------------------------------------------------


def test_a_descriptor_takes_whole_lines_and_stays_open():
    with pipe() as (reading, writing):
        descriptor = FdWriter(writing)
        descriptor.write(b"one\n")
        descriptor.close()
        descriptor.write(b"two\n")
        assert lines_of(reading) == ["one", "two"]


def test_writing_waits_for_a_non_blocking_pipe():
    with pipe() as (reading, writing):
        n_bytes = fill(writing)
        os.set_blocking(writing, False)
        thread = threading.Thread(target=FdWriter(writing).write, args=(b"late\n",))
        thread.start()
        os.read(reading, n_bytes)
        thread.join()
        assert lines_of(reading) == ["late"]


def test_a_pipe_without_a_reader_is_an_error():
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        FdWriter(writing).write(b"nobody reads this\n")
    os.close(writing)


def test_the_start_of_a_line_that_failed_is_ended_before_the_next(monkeypatch):
    write, room = os.write, [3, 0, 100]

    def write_some(fd: int, data: memoryview) -> int:
        if not (n_bytes := room.pop(0)):
            raise OSError(errno.ENOSPC, "full")
        return write(fd, data[:n_bytes])

    with pipe() as (reading, writing):
        descriptor = FdWriter(writing)
        monkeypatch.setattr("os.write", write_some)
        with pytest.raises(OSError, match="full"):
            descriptor.write(b"first\n")
        descriptor.write(b"second\n")
        monkeypatch.undo()
        assert lines_of(reading) == ["fir", "second"]


def test_the_name_of_a_writer_is_its_descriptor():
    assert str(FdWriter(STDERR)) == "stderr"
    assert str(FdWriter(7)) == "descriptor 7"
