import re
import signal
import socket
from pathlib import Path

import pytest

import inferd
from inferd.server.identity.mapping import Identities, IdRange, IdRanges
from inferd.server.identity.peer import peer_of
from tests.daemon.harness import (
    DaemonProcess,
    MakeDaemon,
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
    needs_root,
    open_to_all,
)
from tests.model.tiny import write_tiny_model

FIRST, N_UIDS = 100_000, 65_536
SOME = [FIRST + n * 1500 for n in range(40)]
"""Of the many uids that one user has, some from everywhere."""
ENDLESS = mock(tokens=["x"] * 10_000, token_delay_ms=10)
PROMPT = "the keeper of the lighthouse hid the key under the third stone " * 4
OWNERS = [str(ANNA), "0", "nobody-of-that-name"]


@pytest.fixture
def start(make_daemon: MakeDaemon, tmp_path):
    """Start a daemon on a system that gives the uids to an owner."""

    def make(owner: str, *backends, **tables) -> DaemonProcess:
        file = tmp_path / "subuid"
        file.write_text(f"{owner}:{FIRST}:{N_UIDS}\n")
        users = {"subuid_file": str(file), "subgid_file": "/dev/null"}
        config = {
            "listen": {"group": SHARED_GROUP},
            "users": users,
            "backend": [*backends],
        }
        return open_to_all(make_daemon({**config, **tables})).start()

    return make


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("owner", OWNERS)
def test_all_uids_of_one_owner_have_one_users_share_of_the_queue(start, owner):
    daemon = start(owner, ENDLESS, admission={"max_active": 1, "max_queued": 8})
    crowd = [connect_as(daemon, uid) for uid in SOME]
    for each in crowd:
        each.send(generate(progress=True))
    kinds = [each.frame()["type"] for each in crowd]
    assert kinds.count("error") == len(SOME) - 1 - 8
    other = connect_as(daemon, BERT)
    other.send(generate(progress=True))
    told = other.frame()
    assert (told["type"], told["position"]) == ("status", 1)


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("owner", OWNERS)
def test_all_uids_of_one_owner_have_one_users_places(start, owner):
    daemon = start(owner, mock(), limits={"max_connections": 20})
    crowd = [connect_as(daemon, uid) for uid in SOME]
    for refused in crowd[20:]:
        [frame] = refused.read_to_eof()
        assert frame["code"] == "queue_full"
    assert connect_as(daemon, BERT).ask(generate())[-1]["type"] == "done"


@pytest.mark.slow
@needs_root
def test_the_log_has_the_uid_and_its_owner(start):
    daemon = start(str(ANNA), mock())
    for uid in (FIRST + 5, ANNA):
        assert connect_as(daemon, uid).ask(generate())[-1]["type"] == "done"
    [line] = daemon.logged(msg="request_done", peer_uid=FIRST + 5)
    assert line["peer_owner"] == ANNA
    [line] = daemon.logged(msg="request_done", peer_uid=ANNA)
    assert "peer_owner" not in line


@pytest.mark.slow
@needs_root
def test_a_subordinate_uid_may_not_do_what_its_owner_may(start):
    daemon = start(
        str(ANNA),
        mock(),
        access={"infer": {"uids": [ANNA]}, "admin": {"uids": [ANNA]}},
    )
    for leaf in ("infer.sock", "admin.sock"):
        [refusal] = connect_as(daemon, FIRST, leaf=leaf).read_to_eof()
        assert "may not" in str(refusal)
    assert connect_as(daemon, ANNA).ask(generate())[-1]["type"] == "done"


@pytest.mark.slow
@needs_root
def test_who_connects_after_a_reload_counts_by_what_the_file_says_then(start, tmp_path):
    daemon = start(str(ANNA), mock(), limits={"max_connections": 4})
    (tmp_path / "subuid").write_text(f"{BERT}:{FIRST}:{N_UIDS}\n")
    daemon.send_signal(signal.SIGHUP)
    assert eventually(lambda: daemon.logged(msg="config.reloaded") != [])
    assert connect_as(daemon, FIRST).ask(generate())[-1]["type"] == "done"
    [line] = daemon.logged(msg="request_done", peer_uid=FIRST)
    assert line["peer_owner"] == BERT


def cached_tokens(daemon: DaemonProcess, uid: int) -> int:
    with connect_as(daemon, uid) as connection:
        done = connection.ask(generate(PROMPT, temperature=0, max_tokens=5))[-1]
    assert done["type"] == "done", done
    return int(done["usage"].get("cached_tokens", 0))


@pytest.mark.slow
@pytest.mark.model
@needs_root
def test_an_owner_shares_what_is_cached_and_containers_do_not(start, tmp_path):
    tiny = llamacpp(write_tiny_model(tmp_path / "tiny.gguf"))
    daemon = start(str(ANNA), tiny)
    assert cached_tokens(daemon, FIRST) == 0
    assert cached_tokens(daemon, ANNA) > 0
    assert cached_tokens(daemon, BERT) == 0
    daemon = start("0", tiny)
    found = [cached_tokens(daemon, uid) for uid in (FIRST, FIRST + 1, 0, BERT)]
    assert found == [0, 0, 0, 0]
    assert cached_tokens(daemon, FIRST) > 0


# --- in the code ------------------------------------------------------------------------

BY_REAL_UID = {
    "identity/access.py": "rules and operators go by what the kernel says",
    "identity/gateways.py": "so do those whose requests may name a principal",
    "request_context.py": "the log has the uid as it is",
    "admin/commands.py": "so has the list of requests",
    "history/record.py": "so has the record of each",
    "identity/peer.py": "this is where users come from",
}
REFUSAL = re.compile(r"PermissionDeniedError\((?:self\._)?peer\.uid,")
"""Says to a client by its uid that it has no access."""


def test_nothing_else_in_the_server_goes_by_a_peers_uid():
    server = Path(inferd.__file__).parent / "server"
    paths = {path.relative_to(server).as_posix(): path for path in server.rglob("*.py")}
    assert set(BY_REAL_UID) < set(paths)
    for name, path in paths.items():
        text = REFUSAL.sub("", path.read_text())
        if name not in BY_REAL_UID:
            assert not re.search(r"peer\w*(\([^)]*\))?\.uid\b", text), name


@needs_root
@pytest.mark.parametrize("uid", [2**31, 2**32 - 3], ids=hex)
def test_a_uid_of_the_upper_half_counts_as_its_owner_too(short_dir, uid):
    """The kernel's uids have no sign: read with one, they would be in nobody's range."""
    short_dir.chmod(0o755)
    identities = Identities(uids=IdRanges([IdRange(2**31, 2**31 - 1, ANNA)]))
    with (
        socket.socket(socket.AF_UNIX) as listener,
        socket.socket(socket.AF_UNIX) as peer,
    ):
        listener.bind(str(short_dir / "infer.sock"))
        (short_dir / "infer.sock").chmod(0o777)
        listener.listen()
        with as_user(uid):
            peer.connect(str(short_dir / "infer.sock"))
        with listener.accept()[0] as accepted:
            found = peer_of(accepted, identities)
    assert (found.uid, found.gid, found.user, found.owner) == (uid, uid, ANNA, ANNA)
