import ctypes
import subprocess
import sys

import pytest

from inferd.worker.sandbox.stages import reserve_closure_page

SERVES = """
import ctypes
from inferd.config.kinds.kind import Sandbox
from inferd.worker.sandbox import WorkerSandbox, drop_privileges
drop_privileges()
sandbox = WorkerSandbox()
sandbox.enter_loading(Sandbox.CPU)
sandbox.enter_serving()
kinds = [ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int] * n) for n in range(3)]
for number in range(1000):
    kept = [kind(lambda *_: number) for kind in kinds]
    assert kept[0]() == number
print("called")
"""


def test_a_closure_page_can_be_reserved_more_than_once():
    reserve_closure_page()
    reserve_closure_page()
    assert ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)() == 7


@pytest.mark.slow
def test_callbacks_work_where_no_executable_memory_can_be_mapped():
    done = subprocess.run(
        [sys.executable, "-c", SERVES], check=False, capture_output=True, text=True
    )
    assert done.stdout == "called\n", done.stderr
