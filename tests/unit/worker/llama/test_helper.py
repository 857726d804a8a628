import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from inferd.worker.llama import helper

pytestmark = pytest.mark.slow


def test_it_imports_nothing_before_there_is_something_to_do():
    process = helper.start()
    assert process.stdin
    assert process.stdout
    maps = Path(f"/proc/{process.pid}/maps")
    assert "llguidance" not in maps.read_text()
    process.stdin.write('[["a", "b"], [1], [1]]\n')
    process.stdin.flush()
    assert process.stdout.readline() == "null\n"
    assert "llguidance" in maps.read_text()
    helper.end(process)


def test_it_ends_with_its_input():
    with helper.start() as process:
        assert process.stdin
        process.stdin.close()
        assert process.wait(20) == 0


PARENT = """
import time
from inferd.worker.llama import helper
process = helper.start()
process.stdin.write('[["a", "b"], [1], [1]]\\n')
process.stdin.flush()
process.stdout.readline()
print(process.pid, flush=True)
time.sleep(60)
"""


def test_it_ends_with_who_started_it():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as it:
        assert it.stdout
        pid = int(it.stdout.readline())
        end_of_helper = os.pidfd_open(pid)
        os.kill(pid, signal.SIGSTOP)  # so that it sees no end of its input
        it.kill()
    assert select.select([end_of_helper], [], [], 20)[0]
    os.close(end_of_helper)


def test_one_that_is_ended_is_gone():
    process = helper.start()
    helper.end(process)
    assert process.returncode is not None
    helper.end(process)
