import os
import signal
import stat
from pathlib import Path

import pytest

from inferd.limits.connections import MAX_ADMIN_CONNECTIONS, MAX_CONNECTIONS
from tests.daemon.harness import DaemonProcess, MakeDaemon, mock

pytestmark = pytest.mark.slow

INFERENCE = ("infer.sock", "infer.v2.sock", "infer.embed.sock", "infer.rerank.sock")
LEAVES = (*INFERENCE, "admin.sock")
CONFIG = {"backend": [mock()]}
STALLS_AT_LOAD = {"backend": [mock(die_at_load=True, die_by="SIGSTOP")]}


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_listener_that_comes_early_hears_how_far_the_start_is(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon(STALLS_AT_LOAD)
    daemon.spawn()
    listener = daemon.admin()
    *before, loading = listener.until("loading_model")
    assert before in ([], [{"id": "admin", "type": "status", "status": "starting"}])
    daemon.wait_stopped()
    daemon.kill_worker(signal.SIGCONT)
    capabilities, ready = listener.until("ready")
    assert loading == {
        "id": "admin",
        "type": "status",
        "status": "loading_model",
        "phase": "checking_local",
        "path": "(mock)",
        "backend": "mock",
    }
    assert capabilities["status"] == "capabilities"
    assert capabilities["backend"] == "mock"
    assert ready == {"id": "admin", "type": "status", "status": "ready"}


def test_capabilities_say_what_the_backend_can_do(shared_daemon: DaemonProcess):
    capabilities = shared_daemon.admin().frame()
    version = capabilities.pop("daemon_version")
    assert isinstance(version, str)
    assert version
    assert capabilities == {
        "id": "admin",
        "type": "status",
        "status": "capabilities",
        "backend": "mock",
        "aliases": [],
        "state": "ready",
        "model": "mock",
        "accelerator": "cpu",
        "gpu_layers": 0,
        "generate": True,
        "v2": True,
        "vision": False,
        "audio": False,
        "tools": True,
        "thinking": True,
        "embed": True,
        "rerank": True,
        "structure": False,
        "dialect": "generic",
        "wire_version": 1,
    }


def test_a_late_listener_gets_capabilities_and_then_the_present_state(
    shared_daemon: DaemonProcess,
):
    listener = shared_daemon.admin()
    assert [frame["status"] for frame in listener.until("ready")] == [
        "capabilities",
        "ready",
    ]


def test_the_inference_socket_is_not_there_before_the_backend_is_ready(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon(STALLS_AT_LOAD)
    daemon.spawn()
    listener = daemon.admin()
    listener.until("loading_model")
    daemon.wait_stopped()
    assert not daemon.infer_sock.exists()
    daemon.kill_worker(signal.SIGCONT)
    listener.until("ready")
    assert daemon.ask()[-1]["type"] == "done"


def test_sigterm_while_loading_ends_the_daemon_and_its_sockets(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon(STALLS_AT_LOAD)
    daemon.spawn()
    daemon.admin().until("loading_model")
    assert daemon.stop() == 0
    assert [path.name for path in daemon.directory.iterdir()] == ["inferd.lock"]


def test_a_surface_that_is_turned_off_has_no_socket(make_daemon: MakeDaemon):
    daemon = make_daemon({**CONFIG, "listen": {"v2": False, "rerank": False}}).start()
    daemon.admin().until("ready")
    leaves = sorted(path.name for path in daemon.directory.glob("infer*.sock"))
    assert leaves == ["infer.embed.sock", "infer.sock"]


def test_the_sockets_let_in_whom_they_should(shared_daemon: DaemonProcess):
    assert mode_of(shared_daemon.directory) == 0o700
    for leaf in INFERENCE:
        assert mode_of(shared_daemon.directory / leaf) == 0o660
    assert mode_of(shared_daemon.admin_sock) == 0o600
    assert mode_of(shared_daemon.directory / "inferd.lock") == 0o600


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_symlink_where_a_socket_should_be_is_refused(make_daemon: MakeDaemon, leaf):
    daemon = make_daemon(CONFIG)
    daemon.directory.mkdir(mode=0o700)
    target = daemon.scratch / "target"
    (daemon.directory / leaf).symlink_to(target)
    assert f"is a symlink (refused): {daemon.directory / leaf}" in daemon.refusal()
    assert not target.exists()


def test_a_symlink_where_the_lock_should_be_is_refused(make_daemon: MakeDaemon):
    daemon = make_daemon(CONFIG)
    daemon.directory.mkdir(mode=0o700)
    lock = daemon.directory / "inferd.lock"
    target = daemon.scratch / "target"
    lock.symlink_to(target)
    assert f"lock path is a symlink (refused): {lock}" in daemon.refusal()
    assert not target.exists()


def test_a_file_where_a_socket_should_be_is_refused_and_kept(make_daemon: MakeDaemon):
    daemon = make_daemon(CONFIG)
    daemon.directory.mkdir(mode=0o700)
    daemon.admin_sock.write_text("precious")
    assert str(daemon.admin_sock) in daemon.refusal()
    assert daemon.admin_sock.read_text() == "precious"


def test_sockets_that_a_killed_daemon_left_are_replaced(make_daemon: MakeDaemon):
    killed = make_daemon(CONFIG).start()
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert killed.infer_sock.is_socket()
    assert killed.admin_sock.is_socket()
    successor = make_daemon({**CONFIG, "listen": {"directory": str(killed.directory)}})
    assert successor.start().ask()[-1]["type"] == "done"
    assert successor.admin().until("ready")


def test_a_second_daemon_on_the_same_lock_is_refused_and_the_first_unharmed(
    make_daemon: MakeDaemon,
):
    first = make_daemon(CONFIG).start()
    second = make_daemon({**CONFIG, "listen": {"directory": str(first.directory)}})
    lock = first.directory / "inferd.lock"
    assert second.refusal() == (
        f"error: another inferd daemon already holds the lock at {lock}"
    )
    assert first.ask()[-1]["type"] == "done"
    assert first.admin().until("ready")


def test_a_socket_path_of_107_bytes_is_the_longest_that_fits(make_daemon: MakeDaemon):
    daemon = make_daemon(CONFIG)
    stem = str(daemon.scratch / "run")
    room = 107 - len("/infer.rerank.sock")
    fits = make_daemon({**CONFIG, "listen": {"directory": stem.ljust(room, "d")}})
    assert len(os.fsencode(fits.directory / "infer.rerank.sock")) == 107
    assert fits.start().ask()[-1]["type"] == "done"
    over = make_daemon({**CONFIG, "listen": {"directory": stem.ljust(room + 1, "d")}})
    refusal = over.refusal()
    assert "socket path has 108 bytes, at most 107 fit" in refusal
    assert str(over.directory) in refusal


def test_a_directory_that_anybody_may_write_to_is_refused(make_daemon: MakeDaemon):
    daemon = make_daemon(CONFIG)
    daemon.directory.mkdir()
    daemon.directory.chmod(0o777)
    assert str(daemon.directory) in daemon.refusal()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"admission": {"max_activ": 1}}, ["admission.max_activ", "max_active"]),
        ({"admission": {"max_active": 0}}, ["admission.max_active", "0", ">= 1"]),
        ({"limits": {"drain_s": "long"}}, ["limits.drain_s", "'long'"]),
        ({"backend": [mock(die_by="SIGWINCH")]}, ["die_by", "SIGWINCH"]),
        ({"backend": [mock(), mock()]}, ["backend[1].name", "'mock'"]),
    ],
)
def test_a_key_that_cannot_be_used_stops_the_start_with_one_line(
    make_daemon: MakeDaemon, config, words
):
    daemon = make_daemon({**CONFIG, **config})
    refusal = daemon.refusal()
    assert refusal.startswith(f"error: {daemon.config_file}: ")
    assert [word for word in words if word not in refusal] == []
    assert not daemon.directory.exists()


def test_a_worker_that_dies_while_it_loads_ends_the_start(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock(die_at_load=True)]})
    assert daemon.refusal().startswith("error: backend mock: killed by SIGKILL")
    assert daemon.wait() == 2
    assert not daemon.infer_sock.exists()
    assert not daemon.admin_sock.exists()


def test_a_worker_that_hangs_while_it_loads_ends_the_start(make_daemon: MakeDaemon):
    daemon = make_daemon({**STALLS_AT_LOAD, "limits": {"load_silence_s": 0.5}})
    assert "backend mock: hung: no message for 0.5 s" in daemon.refusal()


def test_what_a_listener_says_that_is_no_command_harms_nobody(
    shared_daemon: DaemonProcess,
):
    with shared_daemon.admin() as listener:
        listener.send_raw(b"\xff{not json\n" * 100)
        listener.until("ready")
        replies = [listener.frame() for _ in range(100)]
        assert {each["ok"] for each in replies} == {False}
        listener.half_close()
        shared_daemon.catch_up()
    assert shared_daemon.admin().until("ready")


def test_there_is_room_for_all_descriptors_before_the_first_client(
    shared_daemon: DaemonProcess,
):
    status = Path(f"/proc/{shared_daemon.pid}/status").read_text()
    [size] = [line for line in status.splitlines() if line.startswith("FDSize:")]
    assert int(size.split()[1]) > MAX_CONNECTIONS + MAX_ADMIN_CONNECTIONS
