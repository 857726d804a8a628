from collections import Counter
from typing import Any

import pytest

from tests.daemon.harness import (
    Connection,
    DaemonProcess,
    MakeDaemon,
    content_of,
    eventually,
    generate,
    llamacpp,
    mock,
)
from tests.daemon.speech import RATE, V2, appended, live
from tests.daemon.users import (
    ANNA,
    BERT,
    SHARED_GROUP,
    connect_as,
    needs_root,
    open_to_all,
)
from tests.model.tiny import write_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.alone, needs_root]

CARL = 70_003
SAMPLE = b"\0\0\0\0"
PERMITS = 2
MANY = 150
"""Tokens of a hog's answer: seconds, at 10 ms each; the victim's is one."""


def start(make_daemon: MakeDaemon, *backends, **admission) -> DaemonProcess:
    """Start a daemon that takes a permit back after the shortest time there is."""
    chosen = {"max_active": PERMITS, "quantum_s": 0.1, **admission}
    config = {
        "listen": {"group": SHARED_GROUP},
        "backend": [*backends],
        "admission": chosen,
    }
    return open_to_all(make_daemon(config)).start()


def hogs(
    daemon: DaemonProcess, n: int = PERMITS, uid: int = ANNA, **fields: Any
) -> list[Connection]:
    """Have a user ask for more than anybody should, and begin to be answered."""
    clients = [connect_as(daemon, uid) for _ in range(n)]
    for number, client in enumerate(clients):
        client.send(generate(id=f"hog-{number}", **fields))
    for client in clients[:PERMITS]:
        assert client.frame()["type"] == "token"
    return clients


def slow_mock(n_tokens: int = MANY) -> dict[str, object]:
    words = [f"{n} " for n in range(n_tokens)]
    return mock(tokens=words, token_delay_ms=10, transcribe=True)


def test_who_holds_all_permits_lets_another_user_have_a_turn(make_daemon: MakeDaemon):
    daemon = start(make_daemon, slow_mock())
    clients = hogs(daemon, max_tokens=MANY)
    with connect_as(daemon, BERT) as other:
        frames = other.ask(generate(max_tokens=3))
    assert content_of(frames[:-1]) == "0 1 2 "
    log = daemon.logged(msg="request_done")
    assert [each["peer_uid"] for each in log] == [BERT]  # before any of the hog's
    ends = [client.frames()[-1] for client in clients]
    for done in ends:
        assert done["content"] == "".join(f"{n} " for n in range(MANY))
        assert (done["type"], done["stop_reason"]) == ("done", "end")
    assert sum("paused_ms" in done["timing"] for done in ends) == 1


def test_of_three_users_none_waits_for_more_than_a_turn_of_the_others(
    make_daemon: MakeDaemon,
):
    daemon = start(make_daemon, slow_mock(), max_active=1)
    [first] = hogs(daemon, 1, max_tokens=MANY)
    others = [connect_as(daemon, uid) for uid in (BERT, CARL)]
    for other in others:
        other.send(generate(max_tokens=MANY))
    for other in others:
        assert other.frame()["type"] == "token"
    assert "request_done" not in {line["msg"] for line in daemon.log_lines()}
    for client in (first, *others):
        assert client.frames()[-1]["content"].endswith(f"{MANY - 1} ")


def test_alone_nobody_is_paused(make_daemon: MakeDaemon):
    daemon = start(make_daemon, slow_mock(40))
    for client in hogs(daemon, 4, max_tokens=40):
        done = client.frames()[-1]
        assert done["type"] == "done"
        assert "paused_ms" not in done["timing"]


def test_who_wants_to_know_is_told_the_place_in_the_queue_while_paused(
    make_daemon: MakeDaemon,
):
    daemon = start(make_daemon, slow_mock(), max_active=1)
    with connect_as(daemon, ANNA, leaf=V2) as hog, connect_as(daemon, BERT) as other:
        turn = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
        hog.send({"id": "h", "messages": [turn], "progress": True, "max_tokens": MANY})
        while "block" not in hog.frame():
            pass
        other.send(generate(max_tokens=100))
        frames = hog.frames()
    assert {"id": "h", "type": "status", "status": "queued", "position": 1} in frames
    assert frames[-1]["type"] == "done"
    assert frames[-1]["timing"]["paused_ms"] > 0


@pytest.mark.parametrize("what", ["cancel", "close", "worker"])
def test_a_paused_request_ends_as_one_that_runs(make_daemon: MakeDaemon, what):
    daemon = start(make_daemon, slow_mock(10_000), max_active=1)
    [hog] = hogs(daemon, 1, max_tokens=10_000)
    other = connect_as(daemon, BERT)
    other.send(generate(max_tokens=10_000))
    other.frame()  # so the hog stands still, for now
    match what:
        case "cancel":
            hog.send({"type": "cancel", "id": "hog-0"})
            assert hog.frames()[-1]["stop_reason"] == "cancelled"
        case "close":
            hog.close()
            assert daemon.logged(msg="request_abandoned")
        case _:
            daemon.kill_worker()
            for client in (hog, other):
                assert client.frames()[-1]["code"] == "backend_unavailable"
    other.close()
    assert eventually(lambda: daemon.ask(max_tokens=1)[-1]["type"] == "done")


# --- real text --------------------------------------------------------------------------


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0, 1])
def test_two_who_take_turns_are_answered_as_if_they_were_alone(
    make_daemon: MakeDaemon, tmp_path, temperature
):
    backend = llamacpp(write_tiny_model(tmp_path / "tiny.gguf"), n_ctx=1024)
    fields = {
        "temperature": temperature,
        "seed": 3,
        "max_tokens": 900,
        "min_tokens": 900,
    }
    alone = {}
    for uid in (ANNA, BERT):
        daemon = start(make_daemon, backend, max_active=1)
        with connect_as(daemon, uid) as client:
            alone[uid] = client.ask(generate(f"I am {uid}", **fields))[-1]["content"]
    daemon = start(make_daemon, backend, max_active=1)
    clients = {uid: connect_as(daemon, uid) for uid in alone}
    for uid, client in clients.items():
        client.send(generate(f"I am {uid}", **fields))
    together = {uid: client.frames()[-1] for uid, client in clients.items()}
    assert {uid: done["content"] for uid, done in together.items()} == alone
    assert any("paused_ms" in done["timing"] for done in together.values())


# --- live recordings --------------------------------------------------------------------


def listeners(daemon: DaemonProcess, n: int, uid: int = ANNA) -> list[Connection]:
    """Have a user begin recordings of which next to nothing comes."""
    clients = [connect_as(daemon, uid, leaf=V2) for _ in range(n)]
    for number, client in enumerate(clients):
        client.send(live(id=f"live-{number}"))
        client.send(appended(SAMPLE, id=f"live-{number}"))
    return clients


def test_recordings_in_which_nobody_speaks_keep_nobody_from_running(
    make_daemon: MakeDaemon,
):
    daemon = start(make_daemon, slow_mock(3), quantum_s=3600.0)
    silent = listeners(daemon, PERMITS)
    assert daemon.ask()[-1]["type"] == "done"
    for number, client in enumerate(silent):
        client.send(appended(b"\0" * 4 * RATE, id=f"live-{number}", end=True))
    for client in silent:
        done = client.frames()[-1]
        assert (done["type"], done["transcription"]["audio_ms"]) == ("done", 1000)


def test_no_user_has_more_recordings_than_one_may(make_daemon: MakeDaemon):
    daemon = start(make_daemon, slow_mock(3), max_live=3, max_queued=20)
    clients = listeners(daemon, 3)
    daemon.catch_up()
    with connect_as(daemon, ANNA, leaf=V2) as one_more:
        one_more.send(live(id="more"))
        assert one_more.frame()["code"] == "queue_full"
    with connect_as(daemon, BERT, leaf=V2) as other:
        other.send(live(SAMPLE, id="other"))
        other.send(appended(id="other", end=True))
        assert other.frames()[-1]["type"] == "done"
    for client in clients:
        client.close()
    assert Counter(
        each["code"] for each in daemon.logged(msg="v2_request_refused")
    ) == {"queue_full": 1}
