import subprocess
import sys

import inferd.client

HEAVY = {"trio", "numpy", "structlog", "llama_cpp", "av", "PIL", "pydantic"}


def test_each_name_is_there_and_no_other():
    for name in inferd.client.__all__:
        named = getattr(inferd.client, name)
        assert getattr(named, "__name__", "AnyMessage") == name  # a union has no name
    assert not hasattr(inferd.client, "other")


def test_a_client_for_threads_is_light():
    program = "import sys, inferd.client; inferd.client.Client(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not HEAVY & {*done.stdout.split()}
