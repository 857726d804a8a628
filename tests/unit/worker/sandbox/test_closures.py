import ctypes
import subprocess
import sys

import pytest

from inferd.worker.sandbox.closures import make_room_for_closures

SERVES = """
import ctypes
from inferd.config import MockSettings
from inferd.worker.sandbox import Sandbox, give_up_privileges
give_up_privileges()
sandbox = Sandbox()
sandbox.enter(MockSettings(name="m"))
sandbox.begin_serving()
kinds = [ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int] * n) for n in range(3)]
for number in range(1000):
    kept = [kind(lambda *_: number) for kind in kinds]
    assert kept[0]() == number
print("called")
"""


def test_room_can_be_made_more_than_once():
    make_room_for_closures()
    make_room_for_closures()
    assert ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)() == 7


@pytest.mark.slow
def test_functions_can_be_given_to_a_library_where_no_code_is_made():
    done = subprocess.run(
        [sys.executable, "-c", SERVES], check=False, capture_output=True, text=True
    )
    assert done.stdout == "called\n", done.stderr
