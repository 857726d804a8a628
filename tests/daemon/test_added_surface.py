"""A daemon process with one more surface, which its composition root is given."""

import stat
from pathlib import Path

import pytest

from tests.daemon.harness import mock
from tests.fakes.echo import SERVE_WITH_ECHO, SOCKET, echo_fields

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_a_process_serves_an_added_surface_beside_the_others(make_daemon):
    config = {"backend": [mock(tokens=["Hel", "lo"])]}
    daemon = make_daemon(config, environ={"PYTHONPATH": str(ROOT)})
    daemon.command = SERVE_WITH_ECHO
    daemon.start()
    assert stat.S_IMODE((daemon.directory / SOCKET).stat().st_mode) == 0o660
    with daemon.connect(SOCKET) as connection:
        connection.send(echo_fields("hi"))
        frame = connection.frame()
        assert (frame["type"], frame["text"], frame["answer"]) == (
            "echo",
            "hi",
            "Hello",
        )
        [frame] = connection.ask({"id": "r", "messages": []})
        assert (frame["type"], frame["code"]) == ("error", "invalid_request")
        connection.half_close()
        assert connection.read_to_eof() == []
    assert daemon.ask()[-1]["content"] == "Hello"
    with daemon.admin() as admin:
        text = admin.order("metrics")["text"]
    for outcome in ("end", "invalid_request"):
        labels = f'outcome="{outcome}",socket="{SOCKET}"'
        assert f"inferd_requests_total{{{labels}}} 1.0" in text
    assert daemon.logged(msg="echo_request_done", wire_version="echo")
