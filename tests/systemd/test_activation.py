"""Sockets that a real systemd holds, while the service behind them comes and goes."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.documents.pages import commands
from tests.systemd.container import (
    Container,
    booted,
    missing,
    overlay,
    place,
    tool,
    use_release,
)
from torture.suite import tell_counts

REASON = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.systemd,
    pytest.mark.skipif(bool(REASON), reason=f"no container: {REASON}"),
]

N_CLIENTS = 16
N_RESTARTS = 5
N_KILLS = 20
PATIENCE_S = 120.0
CONFIG = """
[admission]
max_queued = 100

[[backend]]
name = "mock"
kind = "mock"
tokens = ["Hel", "lo"]
token_delay_ms = 1
"""
TYPED = commands(
    *("docs/remotes.md", "docs/models.md", "docs/service.md", "docs/troubleshooting.md")
)
REQUEST = '{"id":"a","messages":[{"role":"user","content":"hello"}],"stream":false}\n'
REQUEST_OVER_HTTP = '{"messages":[{"role":"user","content":"hello"}]}'
PATHS = [
    *("/run/inferd/infer.sock", "/run/inferd/infer.v2.sock"),
    *("/run/inferd/infer.embed.sock", "/run/inferd/infer.rerank.sock"),
    *("/run/inferd/admin.sock", "/run/inferd/inferd.lock", "/run/inferd"),
]
PROCESSES = "inferd serve|inferd[.]worker"


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Iterator[Container]:
    with overlay(tmp_path_factory.mktemp("machine")) as root:
        place(root)
        (root / "etc/inferd").mkdir(exist_ok=True)
        (root / "etc/inferd/config.toml").write_text(CONFIG)
        (root / "etc/inferd/second.toml").write_text(CONFIG + "[listen]\nv2 = false\n")
        with booted(root) as container:
            yield container


@pytest.fixture
def sockets(machine) -> Iterator[Container]:
    """The machine with the sockets held and no service behind them yet."""
    machine.run("systemctl", "start", "inferd.socket")
    yield machine
    machine.run("systemctl", "stop", "inferd.socket")


def ask(machine: Container, path: str = "/run/inferd/infer.sock") -> dict[str, Any]:
    answer = machine.run("nc", "-N", "-U", path, stdin=REQUEST).stdout
    return dict(json.loads(answer))


def eventually(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def storm(
    machine: Container,
    path: str = "/run/inferd/infer.sock",
    n_clients: int = N_CLIENTS,
    token: str = "",
) -> Iterator[dict[str, Any]]:
    """Have clients ask while inside; then tell how it came out for them."""
    outcomes: dict[str, Any] = {}
    with machine.start(
        *("python3", "/opt/storm.py", path, str(n_clients), *([token] if token else []))
    ) as clients:
        try:
            yield outcomes
            output, _ = clients.communicate("", timeout=60)
        finally:
            clients.kill()
    outcomes.update(json.loads(output))
    print(outcomes)  # noqa: T201  # the figures, with pytest -s


def processes(machine: Container) -> list[str]:
    return machine.run("pgrep", "-f", PROCESSES, check=False).stdout.split()


def test_the_first_client_starts_the_service_and_waits_for_it(sockets):
    assert sockets.show("ActiveState") == {"ActiveState": "inactive"}
    assert ask(sockets)["type"] == "done"
    assert sockets.show("ActiveState") == {"ActiveState": "active"}


def test_the_sockets_are_theirs_who_may_use_them(sockets):
    ask(sockets)
    listing = sockets.run("stat", "-c", "%n %U:%G %a", *PATHS).stdout.splitlines()
    inference = [f"{path} root:inferd 660" for path in PATHS[:4]]
    assert listing == [
        *inference,
        "/run/inferd/admin.sock root:root 600",
        "/run/inferd/inferd.lock inferd:inferd 600",
        "/run/inferd root:root 755",
    ]


def test_restarts_in_a_storm_of_clients_fail_no_request(sockets):
    ask(sockets)
    with storm(sockets) as outcomes:
        for _ in range(N_RESTARTS):
            sockets.run("systemctl", "restart", "inferd")
            assert ask(sockets)["type"] == "done"
    tell_counts(restarts=N_RESTARTS, done_during_restarts=outcomes["done"])
    assert set(outcomes) == {"done", "longest_s"}, outcomes
    assert outcomes["done"] > 20


def in_use(machine: Container) -> str:
    return machine.run("readlink", "-f", "/opt/inferd/current").stdout.strip()[-1]


def test_upgrades_in_a_storm_of_clients_fail_no_request(sockets):
    ask(sockets)
    with storm(sockets) as outcomes:
        for number in (2, 1, 2, 1):
            before = sockets.show("MainPID")
            sockets.run(*use_release(number))
            assert in_use(sockets) == str(number)
            assert sockets.show("MainPID") != before
            assert ask(sockets)["type"] == "done"
    assert set(outcomes) == {"done", "longest_s"}, outcomes
    assert outcomes["done"] > 20


def test_a_version_that_does_not_come_up_is_taken_back(sockets):
    broken = "/opt/inferd/releases/0-2/bin/inferd"
    sockets.run("cp", broken, "/opt/kept")
    ask(sockets)
    kept = ("readlink", "/opt/inferd/previous")
    before = sockets.run(*kept, check=False).stdout
    try:
        sockets.run("sh", "-c", f"echo 'exit 2' > {broken}")
        said = sockets.run(*use_release(2)).stderr
        assert "does not come up with 0-2" in said
        assert "going back to 0-1" in said
        assert in_use(sockets) == "1"
        assert sockets.show("ActiveState") == {"ActiveState": "active"}
        assert sockets.run(*kept, check=False).stdout == before
    finally:
        sockets.run("cp", "/opt/kept", broken)
    assert ask(sockets)["type"] == "done"


def test_roll_back_goes_to_the_version_before_and_again_to_this_one(sockets):
    sockets.run(*use_release(2))
    for number in (1, 2, 1):
        sockets.run(*tool("rollback()"))
        assert in_use(sockets) == str(number)
        assert ask(sockets)["type"] == "done"


def test_a_socket_that_the_other_version_has_not_goes_with_it(sockets):
    """A daemon that is handed a socket it does not know would not start."""
    ask(sockets)
    extra = "/opt/inferd/releases/0-2/share/systemd/inferd-extra.socket"
    placed = f"/etc/systemd/system/{extra.rpartition('/')[2]}"
    one = "s/admin.sock/extra.sock/; s/=admin/=extra/"
    source = extra.replace("extra", "admin")
    sockets.run("sh", "-c", f"sed '{one}' {source} > {extra}")
    try:
        sockets.run(*use_release(2))
        sockets.run("systemctl", "stop", "inferd.service")
        sockets.run("systemctl", "start", "inferd-extra.socket")
        sockets.run(*use_release(1))
        assert sockets.run("test", "-e", placed, check=False).returncode == 1
        assert "extra" not in sockets.run("systemctl", "list-units", "inferd*").stdout
        assert ask(sockets)["type"] == "done"
    finally:
        sockets.run("rm", extra)
        sockets.run(*use_release(2))
        sockets.run(*use_release(1))


def test_a_version_that_was_changed_is_not_gone_back_to(sockets):
    sockets.run(*use_release(2))
    changed = "/opt/inferd/releases/0-1/lib/inferd/paths.py"
    sockets.run("cp", changed, "/opt/kept")
    try:
        sockets.run("sh", "-c", f"echo '# changed' >> {changed}")
        refused = sockets.run(*tool("rollback()"), check=False)
        assert "lib/inferd/paths.py was changed" in refused.stderr
        assert refused.returncode != 0
        assert in_use(sockets) == "2"
    finally:
        sockets.run("cp", "/opt/kept", changed)
    sockets.run(*tool("rollback()"))


SWAP = """
import os
os.umask(0)
while True:
    for place in ("/var/cache/inferd", "/var/lib/inferd", "/var/log/inferd"):
        for name in ("models", "inferd.ndjson"):
            try:
                os.chdir(place)
                os.symlink("/root/victim", name)
                os.unlink(name)
                os.makedirs(name + "/deep", exist_ok=True)
                os.rename(name, "kept")
                os.symlink("/root/victim", name)
                os.unlink(name)
                os.rename("kept", name)
            except OSError:
                pass
"""
"""What the service's user does where it may write, without end."""
N_INSTALLS = 6


def test_the_service_s_user_gains_nothing_by_swapping_while_root_installs(sockets):
    ask(sockets)
    sockets.run("mkdir", "--mode=700", "-p", "/root/victim/deep")
    sockets.run("sh", "-c", "echo secret > /root/victim/file")
    before = sockets.run("find", "/root/victim", "-printf", "%p %u %m %s\\n").stdout
    as_service = ("setpriv", "--reuid=inferd", "--regid=inferd", "--clear-groups")
    try:
        for number in range(N_INSTALLS):
            # as versions before this layout left it
            sockets.run("install", "-d", "-o", "inferd", "/var/cache/inferd")
            sockets.run("rm", "-rf", "/var/lib/inferd")
            sockets.run("install", "-d", "-o", "inferd", "-m", "700", "/var/lib/inferd")
            with sockets.start(*as_service, "python3", "-c", SWAP) as attacker:
                try:
                    sockets.run(*use_release(number % 2 + 1))
                    sockets.run(*tool("remove_older_cache()"))
                    assert ask(sockets)["type"] == "done"
                finally:
                    attacker.kill()
            sockets.run("pkill", "-KILL", "-f", "os.umask", check=False)
            after = sockets.run("find", "/root/victim", "-printf", "%p %u %m %s\\n")
            assert after.stdout == before
    finally:
        sockets.run(*use_release(1))
    owners = sockets.run(
        "find",
        "/opt/inferd",
        "(",
        "-not",
        "-user",
        "root",
        "-o",
        "-perm",
        "/022",
        "-not",
        "-type",
        "l",
        ")",
    )
    assert owners.stdout == ""


def is_back(machine: Container, dead: str) -> bool:
    state = machine.show("MainPID", "ActiveState")
    return state["ActiveState"] == "active" and state["MainPID"] != dead


def test_a_killed_daemon_comes_back_and_refuses_no_connection(sockets):
    ask(sockets)
    with storm(sockets) as outcomes:
        for _ in range(N_KILLS):
            pid = sockets.show("MainPID")["MainPID"]
            assert int(pid) > 1
            sockets.run("kill", "-KILL", pid)
            assert eventually(partial(is_back, sockets, pid))
    tell_counts(
        daemon_kills=N_KILLS,
        done_during_kills=outcomes["done"],
        lost_in_flight=outcomes.get("lost", 0),
    )
    assert set(outcomes) <= {"done", "lost", "longest_s"}, outcomes
    assert outcomes["done"] > 20
    assert len(processes(sockets)) == 2


def test_a_stop_leaves_no_process_and_no_socket(sockets):
    ask(sockets)
    assert len(processes(sockets)) == 2
    sockets.run("systemctl", "stop", "inferd.socket")
    state = sockets.show("ActiveState", "Result", "ExecMainStatus")
    assert state == {
        "ActiveState": "inactive",
        "Result": "success",
        "ExecMainStatus": "0",
    }
    assert processes(sockets) == []
    assert sockets.run("ls", "/run/inferd").stdout.split() == ["inferd.lock"]


def test_a_daemon_started_by_hand_is_refused(sockets):
    by_hand = (
        *("env", "RUNTIME_DIRECTORY=/run/inferd", "timeout", "10"),
        *("/opt/inferd/current/bin/inferd", "serve"),
    )
    ask(sockets)
    assert "already holds the lock" in sockets.run(*by_hand, check=False).stderr
    sockets.run("systemctl", "stop", "inferd")
    assert "something listens there" in sockets.run(*by_hand, check=False).stderr
    assert ask(sockets)["type"] == "done"


@contextmanager
def changed(machine: Container, path: str, line: str) -> Iterator[None]:
    """Add a line to the beginning of a file while inside."""
    machine.run("cp", path, "/root/kept")
    machine.run("sed", "-i", f"1i {line}", path)
    try:
        yield
    finally:
        machine.run("cp", "/root/kept", path)


CONFIGURATION = "/etc/inferd/config.toml"


def test_a_failed_start_is_told_to_those_who_wait_and_the_next_one_is_served(sockets):
    with changed(sockets, CONFIGURATION, "nonsense = 1"):
        for _ in range(3):
            frame = ask(sockets)
            assert frame["code"] == "backend_unavailable"
            assert "the daemon did not start: " in frame["message"]
            assert "nonsense" in frame["message"]
        reply = sockets.run("nc", "-U", "/run/inferd/admin.sock", stdin="").stdout
        assert "nonsense" in json.loads(reply)["error"]
        assert sockets.show("NRestarts") == {"NRestarts": "0"}
        assert eventually(lambda: is_stopped(sockets))
        assert "nonsense" in sockets.show("StatusText")["StatusText"]
    assert ask(sockets)["type"] == "done"


def is_stopped(machine: Container) -> bool:
    return machine.show("ActiveState")["ActiveState"] in ("failed", "inactive")


STATUS = ("/usr/local/bin/inferd", "status")


def test_status_starts_nothing_and_tells_how_it_stands(sockets):
    stopped = sockets.run(*STATUS, check=False)
    assert stopped.returncode == 1
    assert stopped.stdout.startswith("stopped inferd.service; the next request starts")
    refused = sockets.run("/usr/local/bin/inferd", "drain", check=False)
    assert "hint: sudo systemctl start inferd.service" in refused.stderr
    assert sockets.show("ActiveState") == {"ActiveState": "inactive"}
    ask(sockets)
    assert sockets.run(*STATUS).stdout.startswith("ready\n")
    with changed(sockets, CONFIGURATION, "nonsense = 1"):
        sockets.run("systemctl", "restart", "inferd", check=False)
        failed = sockets.run(*STATUS, check=False)
        assert failed.stdout.startswith("failed inferd.service: did not start: ")
        assert "nonsense" in failed.stdout
        assert sockets.show("ActiveState") == {"ActiveState": "failed"}


def test_users_are_told_which_sockets_they_may_use_and_what_to_type(sockets):
    sockets.run("useradd", "visitor")
    as_visitor = ("setpriv", "--reuid=visitor", "--regid=visitor")
    outside = (*as_visitor, "--clear-groups")
    inside = (*as_visitor, "--groups=inferd")
    try:
        ask(sockets)
        for command in (STATUS, ("/usr/local/bin/inferd", "generate", "hi")):
            refused = sockets.run(*outside, *command, check=False)
            assert refused.returncode == 2
            hint = "hint: sudo usermod --append --groups inferd visitor; then log in"
            assert hint in refused.stderr
        sockets.run("usermod", "--append", "--groups", "inferd", "visitor")
        refused = sockets.run(*outside, *STATUS, check=False)
        assert "hint: log in again, or run: newgrp inferd" in refused.stderr
        known = sockets.run(*inside, *STATUS, check=False).stdout
        assert known.startswith(("ready ", "running "))
        assert "open to this user: infer.sock, infer.v2.sock" in known
    finally:
        sockets.run("userdel", "visitor")


def test_an_instance_without_a_configuration_tells_its_clients_so(sockets):
    sockets.run("systemctl", "start", "inferd@third.socket")
    try:
        refusal = ask(sockets, "/run/inferd/third/infer.sock")
        assert "third.toml: No such file" in refusal["message"]
    finally:
        sockets.run("systemctl", "stop", "inferd@third.socket")


def test_the_state_of_older_versions_becomes_the_service_s_own_directory(sockets):
    sockets.run("systemctl", "stop", "inferd")
    sockets.run("rm", "-rf", "/var/lib/inferd")
    sockets.run("install", "-d", "-o", "inferd", "-m", "700", "/var/lib/inferd")
    sockets.run("sh", "-c", "echo kept > /var/lib/inferd/file")
    for _ in range(2):
        sockets.run(*use_release(2))
        sockets.run(*use_release(1))
    assert ask(sockets)["type"] == "done"
    paths = ("/var/lib/inferd", "/var/lib/inferd/state")
    listing = sockets.run("stat", "-c", "%n %U %a", *paths).stdout.splitlines()
    assert listing == ["/var/lib/inferd root 755", "/var/lib/inferd/state inferd 700"]
    assert sockets.run("cat", "/var/lib/inferd/state/file").stdout == "kept\n"
    assert sockets.run("ls", "-A", "/var/lib/inferd").stdout.split() == ["state"]


def test_the_machine_s_models_are_root_s_and_read_by_the_service(sockets):
    model = ("/usr/local/bin/inferd", "model")
    written = sockets.write_model("/root/m.gguf")
    sockets.run(
        *("sh", "-c", 'umask 077; exec "$@"', "sh"),
        *(*model, "import", "--system", "/root/m.gguf", "--name", "me/m:q4"),
    )
    listed = sockets.run("setpriv", "--reuid=nobody", *model, "list", "--system")
    assert listed.stdout.startswith("me/m:q4  ")
    refused = sockets.run(
        *("setpriv", "--reuid=nobody", *model, "remove", "--system", "me/m:q4"),
        check=False,
    )
    assert "hint: the same command with sudo" in refused.stderr
    blob = "/var/lib/inferd/models/blobs/*"
    as_service = "setpriv --reuid=inferd --regid=inferd --clear-groups"
    read = sockets.run("sh", "-c", f"{as_service} base64 -w 0 {blob}").stdout
    assert read == written
    wrote = sockets.run("sh", "-c", f"{as_service} touch {blob}", check=False)
    assert "Permission denied" in wrote.stderr
    environment = sockets.show("Environment")["Environment"]
    assert "INFERD_MODELS=/var/lib/inferd/models" in environment
    sockets.run(*model, "remove", "--system", "me/m:q4")


def test_a_reload_fails_if_the_daemon_refuses_the_configuration(sockets):
    ask(sockets)
    before = sockets.show("MainPID")
    with changed(sockets, CONFIGURATION, "nonsense = 1"):
        failed = sockets.run("systemctl", "reload", "inferd", check=False)
        assert failed.returncode == 1
        said = sockets.run("journalctl", "-u", "inferd", "-n", "20").stdout
        assert "error: " in said
        assert "nonsense" in said
    assert sockets.run("systemctl", "reload", "inferd").returncode == 0
    assert sockets.show("MainPID", "ActiveState") == before | {"ActiveState": "active"}
    assert ask(sockets)["type"] == "done"


def test_an_instance_has_sockets_and_a_configuration_of_its_own(sockets):
    sockets.run("systemctl", "start", "inferd@second.socket")
    try:
        assert ask(sockets, "/run/inferd/second/infer.sock")["type"] == "done"
        refusal = ask(sockets, "/run/inferd/second/infer.v2.sock")
        assert refusal["message"] == "no backend serves infer.v2.sock"
        assert ask(sockets)["type"] == "done"
        assert len(processes(sockets)) == 4
    finally:
        sockets.run("systemctl", "stop", "inferd@second.socket")
    assert len(processes(sockets)) == 2


def test_the_commands_of_the_pages_do_what_they_say(sockets):
    sockets.run("useradd", "member")
    # those of the bridge: test_bridge.py
    commands = [each for each in TYPED if re.match("sudo (?!make)", each)]
    commands = [each for each in commands if "bridge" not in each]
    assert len(commands) == 13
    sockets.write_model("my-model.gguf")
    for command in commands:
        command = command.removeprefix("sudo ").replace('"$USER"', "member")
        done = sockets.run("sh", "-c", command, check=False)
        assert done.returncode == 0, sockets.run("journalctl", "-n", "30").stdout
    try:
        assert ask(sockets)["type"] == "done"
        assert ask(sockets, "/run/inferd/second/infer.sock")["type"] == "done"
        wanted = sockets.run("ls", "/etc/systemd/system/sockets.target.wants").stdout
        assert len([name for name in wanted.split() if name.startswith("inferd")]) == 10
        assert sockets.show("PrivateDevices") == {"PrivateDevices": "no"}
        assert sockets.show("PrivateNetwork") == {"PrivateNetwork": "no"}
        assert "inferd" in sockets.run("id", "--name", "--groups", "member").stdout
    finally:
        sockets.run("rm", "-r", "/etc/systemd/system/inferd.service.d")
        sockets.run("systemctl", "daemon-reload")
        sockets.run("systemctl", "disable", "--now", "inferd@second.socket")


RUNTIME = "/run/user/2000"
AS_USER = (
    *("setpriv", "--reuid=somebody", "--regid=somebody", "--init-groups", "env"),
    *(f"XDG_RUNTIME_DIR={RUNTIME}", "HOME=/home/somebody"),
)


@contextmanager
def manager(machine: Container, *properties: str) -> Iterator[Container]:
    """Give the machine a user while inside, with that user's own systemd."""
    # the system's manager makes them when it starts its first service with a sandbox
    machine.run("mkdir", "-p", "/run/systemd/unit-root", "/run/systemd/mount-rootfs")
    machine.run("useradd", "--create-home", "--uid=2000", "somebody")
    machine.run("install", "-d", "-o", "somebody", "-m", "700", RUNTIME)
    config = "/home/somebody/.config/inferd/config.toml"
    machine.run("install", "-D", "/etc/inferd/config.toml", config)
    machine.run("chown", "-R", "somebody:", "/home/somebody")
    machine.run(
        *("systemd-run", "--unit=theirs", "--uid=somebody", "--property=Delegate=yes"),
        *("--setenv=HOME=/home/somebody", f"--setenv=XDG_RUNTIME_DIR={RUNTIME}"),
        *(f"--property={each}" for each in properties),
        *("/lib/systemd/systemd", "--user"),
    )
    running = (*AS_USER, "systemctl", "--user", "is-system-running")
    try:
        assert eventually(lambda: "r" in machine.run(*running, check=False).stdout)
        yield machine
    finally:
        machine.run("systemctl", "stop", "theirs")
        machine.run("userdel", "--remove", "--force", "somebody")
        machine.run("rm", "-r", RUNTIME)


@pytest.fixture
def user(machine) -> Iterator[Container]:
    with manager(machine) as container:
        yield container


def test_a_user_has_a_daemon_of_one_s_own(user):
    [command] = [line for line in TYPED if "systemctl --user" in line]
    user.run(*AS_USER, "sh", "-c", command)
    path = f"{RUNTIME}/inferd/infer.sock"
    answer = user.run(*AS_USER, "nc", "-N", "-U", path, stdin=REQUEST).stdout
    assert json.loads(answer)["type"] == "done"
    assert user.run("stat", "-c", "%U %a", f"{RUNTIME}/inferd").stdout == (
        "somebody 700\n"
    )
    config = "/home/somebody/.config/inferd/config.toml"
    reload = (*AS_USER, "systemctl", "--user", "reload", "inferd")
    with changed(user, config, "nonsense = 1"):
        assert user.run(*reload, check=False).returncode == 1
    user.run(*reload)
    user.run(*AS_USER, "systemctl", "--user", "stop", "inferd")
    status = user.run(*AS_USER, *STATUS, check=False)
    assert status.stdout.startswith("stopped inferd.service; ")
    doctor = user.run(*AS_USER, "/usr/local/bin/inferd", "doctor", check=False)
    told = "service[user]: inferd.service is stopped; the next request starts it"
    assert told in doctor.stdout
    user.run(*AS_USER, "systemctl", "--user", "stop", "inferd.socket")
    assert processes(user) == []


def exposure(user: Container) -> float:
    command = ("systemd-analyze", "--user", "security", "--no-pager", "inferd.service")
    listed = user.run(*AS_USER, *command, check=False).stdout
    found = re.search(r"exposure level for inferd.service: (\S+)", listed)
    assert found, listed
    return float(found[1])


def test_a_user_s_daemon_is_in_a_sandbox_too(user):
    user.run(*AS_USER, "systemctl", "--user", "start", "inferd.socket")
    path = f"{RUNTIME}/inferd/infer.sock"
    answer = user.run(*AS_USER, "nc", "-N", "-U", path, stdin=REQUEST).stdout
    assert json.loads(answer)["type"] == "done"
    assert exposure(user) <= 0.9
    logs = user.run("find", "/home/somebody", "-name", "inferd.ndjson").stdout
    assert logs.count("/log/inferd/inferd.ndjson") == 1
    boxed = json.loads(
        re.findall('.*"worker.boxed".*', user.run("cat", logs.strip()).stdout)[-1]
    )
    assert (boxed["seccomp"], boxed["is_open"]) == (True, False)
    user.run(*AS_USER, "systemctl", "--user", "stop", "inferd.socket")


def test_a_user_s_bridge_answers_that_user_without_a_token_and_nobody_else(user):
    units = ("inferd.socket", "inferd-bridge.socket")
    user.run(*AS_USER, "systemctl", "--user", "start", *units)
    url = "http://127.0.0.1:8313/v1/chat/completions"
    ask_it = ("curl", "--silent", "--data", REQUEST_OVER_HTTP, url)
    own = json.loads(user.run(*AS_USER, *ask_it).stdout)
    assert own["choices"][0]["message"]["content"] == "Hello"
    others = json.loads(user.run(*ask_it).stdout)
    assert others["error"]["code"] == "invalid_api_key"
    stop = ("stop", "inferd-bridge.socket", "inferd.socket")
    user.run(*AS_USER, "systemctl", "--user", *stop)


def test_a_user_without_namespaces_has_a_daemon_by_a_drop_in(machine):
    [install] = [line for line in TYPED if "no-namespaces.conf" in line]
    service = ("systemctl", "--user", "start", "inferd.service")
    with manager(machine, "RestrictNamespaces=yes") as user:
        assert user.run(*AS_USER, *service, check=False).returncode != 0
        user.run(*AS_USER, "sh", "-c", install)
        user.run(*AS_USER, "systemctl", "--user", "daemon-reload")
        user.run(*AS_USER, *service)
        path = f"{RUNTIME}/inferd/infer.sock"
        answer = user.run(*AS_USER, "nc", "-N", "-U", path, stdin=REQUEST).stdout
        assert json.loads(answer)["type"] == "done"


def test_nothing_of_it_went_wrong_as_the_journal_has_it(sockets):
    ask(sockets)
    lines = sockets.run("journalctl", "-u", "inferd", "-o", "cat").stdout.splitlines()
    assert any('"level":"info"' in line for line in lines)
    for word in ("Traceback", '"level":"error"', "atchdog"):
        found = [line for line in lines if word in line]
        assert [line for line in found if '"daemon.failed"' not in line] == []


def test_uninstalling_leaves_no_unit_and_no_process(machine):
    units = ("inferd.socket", "inferd@second.socket")
    machine.run("systemctl", "enable", "--now", *units)
    ask(machine)
    ask(machine, "/run/inferd/second/infer.sock")
    assert len(processes(machine)) == 4
    machine.run(*tool("uninstall()"))
    assert processes(machine) == []
    places = ("/etc/systemd", "/etc/sysusers.d", "/run/inferd")
    left = machine.run("find", *places, "-name", "*infer*.s*").stdout
    assert left == ""
