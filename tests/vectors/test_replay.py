import json
import socket

import pytest

from protocol.player import UnreachableError, read_frame, settle
from protocol.replay import EXIT_FAILED, EXIT_OK, EXIT_UNUSABLE, main
from protocol.vector import LEAVES
from tests.vectors.scripted import frames, says, scripted

ASK = {"send": {"id": "a", "messages": []}}
ERROR = {"type": "error", "id": "a", "code": "invalid_request"}
TOKEN = {"type": "token", "id": "a", "content": "x"}
DONE = {"type": "done", "id": "a", "content": "x"}


@pytest.fixture
def replay(short_dir, capsys):
    """Write a vector and replay it; give the exit code and what was printed."""

    def run(*exchange, surface="v1", arguments=(), **fields):
        document = {"description": "A thing.", "surface": surface, **fields}
        file = short_dir / "thing.json"
        file.write_text(json.dumps(document | {"exchange": exchange}))
        given = ["--directory", str(short_dir), *arguments, str(file)]
        code = main(given)
        return code, capsys.readouterr()

    return run


def test_an_answer_as_expected_is_ok(short_dir, replay):
    with scripted(short_dir, v1=says(TOKEN, DONE)):
        code, printed = replay(
            ASK, {"expect": TOKEN}, {"expect": {"type": "done", "id": "a"}}
        )
    assert code == EXIT_OK
    assert printed.out.splitlines() == [
        f"ok   {short_dir}/thing",
        "1 ok, 0 failed, 0 skipped",
    ]


def test_a_wrong_answer_is_told_with_what_was_expected_and_what_came(short_dir, replay):
    with scripted(short_dir, v1=says(TOKEN, DONE | {"content": "y"})):
        code, printed = replay(ASK, {"expect": TOKEN}, {"expect": DONE})
    assert code == EXIT_FAILED
    told, counts = printed.out.splitlines()
    assert told == (
        f'FAIL {short_dir}/thing: step 3, on v1: $.content is "y", not "x"; '
        f"expected {json.dumps(DONE)}, came {json.dumps(DONE | {'content': 'y'})}"
    )
    assert counts == "0 ok, 1 failed, 0 skipped"


@pytest.mark.parametrize(
    ("came", "told"),
    [
        (b"", "nothing came in time; expected"),
        (b'{"type":"tok', "nothing came in time; expected"),
        (b"token\n", "no JSON came"),
        (b'{"type":NaN}\n', "no JSON came"),
        (b"\xff\n", "no JSON came"),
        (b"[]\n", "no object came"),
        (None, "the end came; expected"),
    ],
)
def test_what_is_no_answer_fails_within_its_time(short_dir, replay, came, told):
    with scripted(short_dir, v1=lambda _: came):
        code, printed = replay(ASK, {"expect": TOKEN}, arguments=["--timeout-s", "0.1"])
    assert code == EXIT_FAILED
    assert f"step 2, on v1: {told}" in printed.out


def test_half_a_frame_at_the_end_is_no_frame(short_dir, replay):
    replies = iter([b'{"type":"token"', None])
    with scripted(short_dir, v1=lambda _: next(replies)):
        code, printed = replay(ASK, ASK, {"expect": {}})
    assert code == EXIT_FAILED
    assert "half a frame came" in printed.out


def test_a_terminal_frame_is_awaited_past_others(short_dir, replay):
    with scripted(short_dir, v1=says(TOKEN, TOKEN, ERROR)):
        code, _ = replay(ASK, {"expect": TOKEN}, {"expect_terminal": ERROR})
    assert code == EXIT_OK


def test_another_terminal_frame_is_wrong(short_dir, replay):
    with scripted(short_dir, v1=says(TOKEN, DONE, ERROR)):
        code, printed = replay(ASK, {"expect_terminal": ERROR})
    assert code == EXIT_FAILED
    assert '$.type is "done", not "error"' in printed.out


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        (lambda _: None, EXIT_OK, "ok "),
        (says(DONE), EXIT_FAILED, "expected the end, came b'{"),
        (lambda _: b"", EXIT_FAILED, "nothing came in time"),
    ],
)
def test_the_end_is_awaited_and_nothing_before(short_dir, replay, answer, code, told):
    with scripted(short_dir, v1=answer):
        found = replay(ASK, {"expect_close": True}, arguments=["--timeout-s", "0.1"])
    assert found[0] == code
    assert told in found[1].out


def test_connections_are_told_apart_by_their_names(short_dir, replay):
    def echo(line):
        return frames({"type": "done", "id": json.loads(line)["id"]})

    steps = [{"on": f"{on}", "send": {"id": on}} for on in ("v1", "v1#2", "v2")]
    ends = [{"on": on, "expect": {"id": on}} for on in ("v2", "v1", "v1#2")]
    with scripted(short_dir, v1=echo, v2=echo):
        code, _ = replay(*steps, *ends)
    assert code == EXIT_OK


def test_the_sending_side_is_ended(short_dir, replay):
    with scripted(short_dir, v1=says(DONE)):
        code, _ = replay(
            {"send_raw": '{"id":"a"}'},
            {"end_of_sending": True},
            {"expect": DONE},
            {"expect_close": True},
        )
    assert code == EXIT_OK


# --- what is not replayed ---------------------------------------------------------


def test_what_needs_another_profile_is_skipped_and_said(short_dir, replay):
    with scripted(short_dir, v1=says(DONE)):
        without = replay(ASK, {"expect": DONE}, profile="plain")
        other = replay(
            ASK, {"expect": DONE}, profile="plain", arguments=["--profile", "dies"]
        )
        same = replay(
            ASK, {"expect": DONE}, profile="plain", arguments=["--profile", "plain"]
        )
    for code, printed in (without, other):
        assert code == EXIT_UNUSABLE
        assert f"skip {short_dir}/thing: needs the profile plain\n" in printed.out
    assert same[0] == EXIT_OK


def test_what_needs_a_socket_that_is_not_there_is_skipped_and_said(short_dir, replay):
    with scripted(short_dir, v1=says(DONE)):
        code, printed = replay(ASK, {"on": "rerank", "expect": {}})
    assert code == EXIT_UNUSABLE
    assert f"skip {short_dir}/thing: there is no infer.rerank.sock\n" in printed.out


@pytest.mark.parametrize(("only", "code"), [("v1", EXIT_OK), ("v2", EXIT_UNUSABLE)])
def test_one_surface_alone_may_be_asked_for(short_dir, replay, only, code):
    with scripted(short_dir, v1=says(DONE)):
        assert replay(ASK, {"expect": DONE}, arguments=["--only", only])[0] == code


def test_the_traffic_is_shown_on_request(short_dir, replay):
    with scripted(short_dir, v1=says(DONE | {"content": "x" * 1000})):
        _, printed = replay(ASK, {"expect": {"type": "done"}}, arguments=["-v"])
    sent, came, *_ = printed.out.splitlines()
    assert sent == '     v1 > {"id": "a", "messages": []}'
    assert came.startswith('     v1 < {"type": "done", "id": "a", "content": "xxx')
    assert came.endswith("…")


# --- no daemon --------------------------------------------------------------------


def test_without_a_daemon_there_is_nothing_to_say(short_dir, replay):
    code, printed = replay(ASK, {"expect": DONE})
    assert code == EXIT_UNUSABLE
    assert printed.out == ""
    assert printed.err == f"error: no socket of a daemon in {short_dir}\n"


def test_a_socket_that_nobody_listens_on_is_no_daemon(short_dir, replay):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(short_dir / LEAVES["v1"]))
    code, printed = replay(ASK, {"expect": DONE})
    assert code == EXIT_UNUSABLE
    assert "cannot connect to" in printed.err


def test_a_file_that_is_no_vector_is_refused(short_dir, replay):
    with scripted(short_dir, v1=says(DONE)):
        code, printed = replay({"sned": "x"})
        missing = main(["--directory", str(short_dir), str(short_dir / "none.json")])
    assert (code, missing) == (EXIT_UNUSABLE, EXIT_UNUSABLE)
    assert "no step" in printed.err


@pytest.mark.parametrize(
    "arguments",
    [[], ["--directory", "x", "--profile", "x"], ["--directory", "x", "--only", "x"]],
)
def test_a_wrong_call_is_refused(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == EXIT_UNUSABLE
    assert "usage:" in capsys.readouterr().err


# --- settling ---------------------------------------------------------------------


READY = [
    {"type": "status", "status": "capabilities"},
    {"type": "status", "status": "ready"},
]


def test_a_daemon_that_is_ready_is_settled(short_dir):
    with scripted(short_dir, admin=frames(*READY)):
        settle(short_dir, timeout_s=90)


def test_a_daemon_that_is_not_ready_in_time_is_none(short_dir):
    with scripted(short_dir, admin=frames(READY[0])):
        with pytest.raises(UnreachableError, match="nothing came in time"):
            settle(short_dir, timeout_s=0.1)


def test_a_request_in_the_way_is_waited_for(short_dir, monkeypatch):
    answers = iter(
        [
            frames({"type": "error", "code": "queue_full"}),
            frames({"type": "error", "code": "backend_unavailable"}),
            frames({"type": "done"}),
        ]
    )
    monkeypatch.setattr("protocol.player.NO_TOKENS", {"messages": []})
    with scripted(short_dir, v1=lambda _: next(answers)):
        settle(short_dir, timeout_s=90)
    assert list(answers) == []


def test_a_frame_is_an_object():
    assert read_frame(b'{"a":1}') == {"a": 1}
