import json

from tests.fakes.listener import listening, read_line, says, status


def reply(**fields):
    return {"id": "admin", "type": "reply", "command": "drain", **fields}


def drain(inferd, directory, answer):
    def follow(sock):
        says(status("ready"))(sock)
        assert json.loads(read_line(sock))["command"] == "drain"
        says(answer)(sock)

    with listening(directory / "admin.sock", follow):
        return inferd("drain", "--directory", directory)


def test_draining_is_printed(inferd, short_dir):
    assert drain(inferd, short_dir, reply(ok=True)) == (0, "", "draining\n")


def test_a_refusal_is_an_error_with_the_daemon_s_message(inferd, short_dir):
    outcome = drain(inferd, short_dir, reply(ok=False, error="not ready"))
    assert outcome == (2, "", "error: not ready\n")


def test_a_missing_daemon_is_an_error_with_a_hint(inferd, short_dir):
    code, _, stderr = inferd("drain", "--directory", short_dir)
    assert code == 2
    assert stderr.endswith("\n\nhint: inferd serve\n")
