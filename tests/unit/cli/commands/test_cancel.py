import json

import pytest

from tests.fakes.listener import listening, read_line, says, status


def reply(**fields):
    return {"id": "admin", "type": "reply", "command": "cancel", **fields}


def cancel(inferd, directory, dialogue):
    with listening(directory / "admin.sock", dialogue):
        return inferd("cancel", "r", "--directory", directory)


def answers(frame):
    def follow(sock):
        says(status("ready"))(sock)
        assert json.loads(read_line(sock)) == {"command": "cancel", "id": "r"}
        says(frame)(sock)

    return follow


def test_the_number_of_cancelled_requests_is_printed(inferd, short_dir):
    outcome = cancel(inferd, short_dir, answers(reply(ok=True, cancelled=2)))
    assert outcome == (0, "", "cancelled 2\n")


def test_an_unknown_request_is_an_error_with_the_daemon_s_message(inferd, short_dir):
    outcome = cancel(inferd, short_dir, answers(reply(ok=False, error="nobody")))
    assert outcome == (2, "", "error: nobody\n")


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ({"ok": True}, 0, "cancelled\n"),
        ({"ok": False}, 2, "error: the daemon refused to cancel\n"),
    ],
)
def test_a_reply_may_be_short(inferd, short_dir, said, code, words):
    assert cancel(inferd, short_dir, answers(reply(**said))) == (code, "", words)


def test_a_missing_daemon_is_an_error_with_a_hint(inferd, short_dir):
    code, stdout, stderr = inferd("cancel", "r", "--directory", short_dir)
    assert (code, stdout) == (2, "")
    assert stderr.endswith("\n\nhint: inferd serve\n")


def test_a_daemon_that_goes_away_is_an_error(inferd, short_dir):
    code, _, stderr = cancel(inferd, short_dir, read_line)
    assert (code, stderr) == (2, "error: the daemon closed the connection\n")


def test_a_daemon_that_knows_no_commands_is_an_error(inferd, short_dir, monkeypatch):
    monkeypatch.setattr("inferd.cli.connect.ADMIN_TIMEOUT_S", 0.01)

    def stay_silent(sock):
        read_line(sock)
        sock.recv(1)

    code, _, stderr = cancel(inferd, short_dir, stay_silent)
    assert (code, stderr) == (2, "error: no reply within 0.01 s\n")
