from functools import partial

import pytest

from tests.daemon.harness import (
    DaemonProcess,
    MakeDaemon,
    content_of,
    eventually,
    generate,
    llamacpp,
    mock,
)
from tests.daemon.users import (
    ANNA,
    BERT,
    SHARED_GROUP,
    as_user,
    connect_as,
    listen_as,
    needs_root,
    open_to_all,
)
from tests.model.tiny import write_tiny_model

pytestmark = [pytest.mark.slow, needs_root]

ENDLESS = mock(tokens=["x"] * 10_000, token_delay_ms=10)
SECRET = "the keeper of the lighthouse hid the key under the third stone " * 4


def start(make_daemon: MakeDaemon, *backends, **tables) -> DaemonProcess:
    config = {"listen": {"group": SHARED_GROUP}, "backend": [*backends], **tables}
    return open_to_all(make_daemon(config)).start()


def test_who_is_in_no_group_that_may_cannot_connect(make_daemon: MakeDaemon):
    daemon = start(make_daemon, mock())
    with as_user(ANNA), pytest.raises(PermissionError):
        daemon.connect()
    assert connect_as(daemon, ANNA).ask(generate())[-1]["type"] == "done"


def test_who_is_not_named_gets_one_error_and_the_end(make_daemon: MakeDaemon):
    daemon = start(make_daemon, mock(), access={"infer": {"uids": [BERT]}})
    for leaf in ("infer.sock", "infer.v2.sock", "infer.embed.sock"):
        refused = connect_as(daemon, ANNA, leaf=leaf)
        [frame] = refused.read_to_eof()
        assert (frame["id"], frame["code"]) == ("", "permission_denied")
        assert frame["message"] == f"uid {ANNA} may not use {leaf}"
    assert connect_as(daemon, BERT).ask(generate())[-1]["type"] == "done"
    assert daemon.ask()[-1]["type"] == "done"
    log = daemon.logged(msg="client.refused")
    assert {each["peer"].split(":")[1] for each in log} == {str(ANNA)}


def test_who_is_in_a_group_that_is_named_may_come_in(make_daemon: MakeDaemon):
    daemon = start(make_daemon, mock(), access={"infer": {"gids": [90_001]}})
    assert connect_as(daemon, ANNA, 90_001).ask(generate())[-1]["type"] == "done"
    [refusal] = connect_as(daemon, BERT, 90_002).read_to_eof()
    assert refusal["code"] == "permission_denied"


def test_a_user_who_fills_all_places_keeps_no_other_out(make_daemon: MakeDaemon):
    daemon = start(make_daemon, mock(), limits={"max_connections": 20})
    crowd = [connect_as(daemon, ANNA) for _ in range(30)]
    for connection in crowd[20:]:
        [frame] = connection.read_to_eof()
        assert (frame["id"], frame["code"]) == ("", "queue_full")
    assert connect_as(daemon, BERT).ask(generate())[-1]["type"] == "done"
    assert crowd[0].ask(generate())[-1]["type"] == "done"


def test_only_operators_listen_and_change_anything(make_daemon: MakeDaemon):
    daemon = start(make_daemon, ENDLESS, access={"admin": {"uids": [ANNA]}})
    stranger = listen_as(daemon.admin_sock, BERT)
    [refusal] = stranger.read_to_eof()
    assert (refusal["type"], refusal["ok"]) == ("reply", False)
    running = daemon.begin("r")
    looking_on = listen_as(daemon.admin_sock, ANNA)
    assert looking_on.order("requests")["requests"] == []
    for command, fields in (("drain", {}), ("reload", {}), ("cancel", {"id": "r"})):
        assert not looking_on.order(command, **fields)["ok"]
    hers = connect_as(daemon, ANNA)
    hers.send(generate(id="r"))
    hers.frame()
    assert looking_on.order("cancel", id="r")["cancelled"] == 1
    assert hers.frames()[-1]["stop_reason"] == "cancelled"
    assert running.frame()["type"] == "token"
    stranger.close()
    looking_on.close()


# --- one user's text never reaches another ----------------------------------------------


def answer_to(daemon: DaemonProcess, uid: int, text: str) -> tuple[str, int]:
    """Have a user answered; give the text, and the tokens found in the cache."""
    with connect_as(daemon, uid) as connection:
        fields = {"temperature": 0, "max_tokens": 20}
        *frames, done = connection.ask(generate(text, **fields))
    assert done["type"] == "done", done
    return content_of(frames), done["usage"].get("cached_tokens", 0)


@pytest.mark.model
def test_what_one_user_asked_reaches_no_other_by_way_of_the_cache(
    make_daemon: MakeDaemon, tmp_path
):
    backend = llamacpp(write_tiny_model(tmp_path / "tiny.gguf"))
    fresh = answer_to(start(make_daemon, backend), BERT, SECRET)
    daemon = start(make_daemon, backend)
    first, _ = answer_to(daemon, ANNA, SECRET)
    again, cached = answer_to(daemon, ANNA, SECRET)
    assert again == first
    assert cached > 0
    assert answer_to(daemon, BERT, SECRET) == fresh == (first, 0)
    assert answer_to(daemon, BERT, SECRET[:100] + "?")[1] > 0
    assert answer_to(daemon, ANNA, SECRET)[1] > 0


def is_gone(daemon: DaemonProcess, pid: int) -> bool:
    return pid not in daemon.worker_pids()


@pytest.mark.model
def test_what_one_user_asked_is_gone_with_the_worker(make_daemon: MakeDaemon, tmp_path):
    backend = llamacpp(write_tiny_model(tmp_path / "tiny.gguf"))
    daemon = start(make_daemon, backend)
    first, _ = answer_to(daemon, ANNA, SECRET)
    for _ in range(2):
        [pid] = daemon.worker_pids()
        daemon.kill_worker()
        assert eventually(partial(is_gone, daemon, pid))
        assert answer_to(daemon, BERT, SECRET) == (first, 0)
        assert answer_to(daemon, ANNA, SECRET) == (first, 0)
        assert answer_to(daemon, ANNA, SECRET)[1] > 0


@pytest.mark.model
def test_users_who_ask_by_turns_are_answered_as_by_a_daemon_of_their_own(
    make_daemon: MakeDaemon, tmp_path
):
    backend = llamacpp(write_tiny_model(tmp_path / "tiny.gguf"))
    texts = {ANNA: SECRET + "what is the key for?", BERT: SECRET + "who is the keeper?"}
    alone = {}
    for uid, text in texts.items():
        alone[uid] = answer_to(start(make_daemon, backend), uid, text)[0]
    daemon = start(make_daemon, backend)
    for _ in range(3):
        for uid, text in texts.items():
            assert answer_to(daemon, uid, text)[0] == alone[uid]
