"""What tests start does not depend on the signals that the caller of pytest ignores."""

import os
import signal
import subprocess
import sys

IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1)
TEST = """
import re
import subprocess


def test_a_child_ignores_and_blocks_nothing():
    status = subprocess.run(
        ["cat", "/proc/self/status"], capture_output=True, check=True, text=True
    ).stdout
    masks = re.findall(r"^Sig(?:Blk|Ign):\\s*(\\w+)$", status, re.MULTILINE)
    internal = 0b11 << 31  # signals 32 and 33 are the C library's own
    assert [int(mask, 16) & ~internal for mask in masks] == [0, 0]
"""


def ignore_and_block() -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)


def test_children_ignore_no_signal_whatever_pytest_inherited(tmp_path):
    (tmp_path / "test_child.py").write_text(TEST)
    options = ("-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, tmp_path, tmp_path],
        preexec_fn=ignore_and_block,  # no threads here
        env=os.environ | {"PYTHONPATH": os.getcwd()},  # noqa: PTH109
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
