import json

import pytest

from tests.fakes.listener import listening, read_line, says, status


def reload(inferd, directory, **fields):
    def follow(sock):
        says(status("ready"))(sock)
        assert json.loads(read_line(sock))["command"] == "reload"
        answer = {"id": "admin", "type": "reply", "command": "reload", **fields}
        says(answer)(sock)

    with listening(directory / "admin.sock", follow):
        return inferd("reload", "--directory", directory)


@pytest.mark.parametrize(
    ("applied", "needs_restart", "words"),
    [
        ([], [], "nothing has changed\n"),
        (
            ["access.infer", "limits.drain_s"],
            [],
            "in force: access.infer, limits.drain_s\n",
        ),
        ([], ["backend"], "needs a restart: backend\n"),
        (
            ["limits.idle_s"],
            ["backend"],
            "in force: limits.idle_s\nneeds a restart: backend\n",
        ),
    ],
)
def test_applied_and_pending_changes_are_printed(
    inferd, short_dir, applied, needs_restart, words
):
    outcome = reload(
        inferd, short_dir, ok=True, applied=applied, needs_restart=needs_restart
    )
    assert outcome == (0, "", words)


def test_a_reply_may_be_short(inferd, short_dir):
    assert reload(inferd, short_dir, ok=True) == (0, "", "nothing has changed\n")


def test_an_invalid_configuration_is_the_daemon_s_error(inferd, short_dir):
    words = "/x.toml: limits.drain_s = -1: expected `float` > 0.0"
    assert reload(inferd, short_dir, ok=False, error=words) == (
        2,
        "",
        f"error: {words}\n",
    )
