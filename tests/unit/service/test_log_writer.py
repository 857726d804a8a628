import errno
import os
import threading

import pytest
from hypothesis import given, strategies as st

from inferd.limits.log import LOG_PAUSE_S
from inferd.service.log_writer import (
    STDERR,
    BackgroundWriter,
    FdWriter,
    n_within,
)
from tests.daemon.harness import PATIENCE_S, eventually
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
    monkeypatch.setattr("inferd.service.log_writer.LOG_QUEUE_LINES", 8)
    lost: list[None] = []
    writer.may_write.clear()
    sink = BackgroundWriter(writer, report=report, on_loss=lambda: lost.append(None))
    sink.write(b"with the writer\n")
    writer.has_begun.wait()
    for _ in range(30):
        sink.write(b"line\n")
    writer.may_write.set()
    sink.close()
    assert len(lost) == 22
    assert writer.lines == [b"with the writer\n", report(22), *[b"line\n"] * 8]


def test_a_sink_that_stays_stalled_can_be_closed(writer, monkeypatch):
    monkeypatch.setattr("inferd.service.log_writer.FLUSH_S", 0.01)
    monkeypatch.setattr("inferd.service.log_writer.LOG_QUEUE_LINES", 2)
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
    monkeypatch.setattr("inferd.service.log_writer.RETRY_S", 0.001)
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
    writer.fails_at, writer.most_lines = {0, 3, 6}, 1
    for _ in range(6):
        sink.write(b"line\n")
    sink.close()
    assert writer.lines == [report(1), b"line\n"] * 3
    assert [str(each) for each in complaints] == ["[Errno 5] call 0"]


# --- batches ----------------------------------------------------------------------------


@pytest.fixture
def endless(monkeypatch):
    """Pauses that end by nothing but the sink's end."""
    monkeypatch.setattr("inferd.service.log_writer.LOG_PAUSE_S", 3600)


def queue_behind_first(
    sink: BackgroundWriter, writer: ScriptedWriter, *lines: bytes
) -> None:
    """Queue lines while the first of them is being written."""
    writer.may_write.clear()
    for each in lines:
        sink.write(each)
        assert writer.has_begun.wait(PATIENCE_S)
    writer.may_write.set()


class Pauses(threading.Event):
    """The event that ends a sink; the pauses before it last until the test ends them."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []
        self.may_end = threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        assert self.may_end.acquire(timeout=PATIENCE_S)
        return self.is_set()


def test_lines_that_come_in_a_pause_are_written_together_after_it(writer):
    sink = BackgroundWriter(writer, report=report)
    pauses = sink._is_closing = Pauses()
    sink.write(b"first\n")
    assert eventually(lambda: pauses.seconds == [LOG_PAUSE_S])
    assert writer.batches == [[b"first\n"]]
    later = [b"%d\n" % n for n in range(5)]
    for each in later:
        sink.write(each)
    pauses.may_end.release()
    assert eventually(lambda: len(pauses.seconds) == 2)
    assert writer.batches == [[b"first\n"], later]
    pauses.may_end.release(2)
    sink.close()


@pytest.mark.usefixtures("endless")
def test_the_end_of_a_sink_ends_its_pause(writer):
    sink = BackgroundWriter(writer, report=report)
    queue_behind_first(sink, writer, b"1\n", b"2\n", b"3\n")
    sink.close()
    assert writer.lines == [b"1\n", b"2\n", b"3\n"]
    assert writer.is_closed


@pytest.mark.usefixtures("endless")
def test_a_batch_is_bounded_and_a_full_one_is_followed_by_the_next(writer, monkeypatch):
    monkeypatch.setattr("inferd.service.log_writer.LOG_BATCH_BYTES", 10)
    sink = BackgroundWriter(writer, report=report)
    short, full = b"short\n", b"full batch\n"
    queue_behind_first(sink, writer, full, *[short] * 5)
    assert eventually(lambda: len(writer.lines) == 6)
    sink.close()
    assert writer.batches == [[full], [short] * 2, [short] * 2, [short]]


def test_what_a_sink_leaves_of_a_batch_is_written_next(writer):
    writer.most_lines = 3
    lines = [b"%d\n" % n for n in range(11)]
    sink = BackgroundWriter(writer, report=report)
    queue_behind_first(sink, writer, *lines)
    sink.close()
    assert writer.lines == lines
    assert [len(each) for each in writer.batches] == [1, 3, 3, 3, 1]


def test_of_a_batch_that_fails_in_its_midst_one_line_is_lost_and_counted(writer):
    lost: list[None] = []
    writer.refused = b"3\n"
    sink = BackgroundWriter(writer, report=report, on_loss=lambda: lost.append(None))
    queue_behind_first(sink, writer, *(b"%d\n" % n for n in range(6)))
    sink.close()
    assert writer.lines == [b"0\n", b"1\n", b"2\n", report(1), b"4\n", b"5\n"]
    assert len(lost) == 1


# --- a descriptor -----------------------------------------------------------------------


def test_a_descriptor_takes_whole_lines_and_stays_open():
    with pipe() as (reading, writing):
        descriptor = FdWriter(writing)
        descriptor.write([b"one\n"])
        descriptor.close()
        descriptor.write([b"two\n"])
        assert lines_of(reading) == ["one", "two"]


def test_writing_waits_for_a_non_blocking_pipe():
    with pipe() as (reading, writing):
        n_bytes = fill(writing)
        os.set_blocking(writing, False)
        thread = threading.Thread(target=FdWriter(writing).write, args=([b"late\n"],))
        thread.start()
        os.read(reading, n_bytes)
        thread.join()
        assert lines_of(reading) == ["late"]


def test_a_pipe_without_a_reader_is_an_error():
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        FdWriter(writing).write([b"nobody reads this\n"])
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
            descriptor.write([b"first\n"])
        descriptor.write([b"second\n"])
        monkeypatch.undo()
        assert lines_of(reading) == ["fir", "second"]


def test_of_a_batch_that_fails_in_a_line_those_before_it_are_written(monkeypatch):
    write, room = os.write, [3, 6, 0, 100]

    def write_some(fd: int, data: memoryview) -> int:
        if not (n_bytes := room.pop(0)):
            raise OSError(errno.ENOSPC, "full")
        return write(fd, data[:n_bytes])

    lines = [b"first\n", b"second\n", b"third\n"]
    with pipe() as (reading, writing):
        descriptor = FdWriter(writing)
        monkeypatch.setattr("os.write", write_some)
        assert descriptor.write(lines) == 1
        assert descriptor.write(lines[1:]) == 2
        monkeypatch.undo()
        assert lines_of(reading) == ["first", "sec", "second", "third"]


@given(st.lists(st.binary(min_size=1, max_size=9)), st.integers(-2, 60))
def test_as_many_lines_are_within_some_bytes_as_have_no_more(lines, n_bytes):
    n_lines = n_within(lines, n_bytes)
    assert n_lines == 0 or sum(map(len, lines[:n_lines])) <= n_bytes
    assert n_lines == len(lines) or sum(map(len, lines[: n_lines + 1])) > n_bytes


def test_the_name_of_a_writer_is_its_descriptor():
    assert str(FdWriter(STDERR)) == "stderr"
    assert str(FdWriter(7)) == "descriptor 7"
