import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

CHILD = """
import os, sys, time
from inferd.sandbox.pdeathsig import die_with_parent
die_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = f"""
import os, subprocess, sys
subprocess.run([sys.executable, "-c", {CHILD!r}, str(os.getpid())])
"""


def test_a_process_dies_with_its_parent_however_that_dies():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as it:
        assert it.stdout
        assert int(it.stdout.readline()) != it.pid
        os.kill(it.pid, signal.SIGKILL)
        assert it.stdout.read() == b""  # which the child holds, too


def test_one_whose_parent_is_gone_already_ends():
    command = [sys.executable, "-c", CHILD, "1"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=90)
    assert done.stdout == b""
