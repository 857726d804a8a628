"""The installed service under a real systemd, hardened as it ships."""

import json
import re
import time

import pytest

from tests.documents.pages import command
from tests.systemd.container import ROOT, booted, install, missing, overlay

REASON = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.systemd,
    pytest.mark.model,
    pytest.mark.skipif(bool(REASON), reason=f"no container: {REASON}"),
]

REQUEST = json.dumps(
    {
        "id": "a",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 4,
        "stream": False,
    }
)
ASK = ("nc", "-N", "-U", "/run/inferd/infer.sock")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with overlay(tmp_path_factory.mktemp("machine")) as root:
        install(root)
        install(root)  # an upgrade, of the same version
        with booted(root) as container:
            container.run("systemctl", "start", "inferd")
            yield container


def test_start_returns_when_the_service_answers(service):
    frame = json.loads(service.run(*ASK, stdin=REQUEST + "\n").stdout)
    assert (frame["type"], frame["id"]) == ("done", "a")
    assert service.show("ActiveState", "StatusText") == {
        "ActiveState": "active",
        "StatusText": "ready",
    }


def test_a_client_in_the_group_may_ask_and_another_may_not(service):
    service.run("useradd", "--groups", "inferd", "member")
    service.run("useradd", "stranger")
    asks = {
        user: service.run(
            *("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *ASK),
            stdin=REQUEST + "\n",
            check=False,
        )
        for user in ("member", "stranger")
    }
    assert json.loads(asks["member"].stdout)["type"] == "done"
    assert "Permission denied" in asks["stranger"].stderr


def test_a_killed_worker_comes_back_within_the_sandbox(service):
    before = service.show("MainPID")
    service.run("pkill", "-KILL", "-f", "inferd.worker")
    frame = json.loads(service.run(*ASK, stdin=REQUEST + "\n").stdout)
    assert frame["type"] == "done"
    assert service.show("MainPID") == before


def test_a_worker_enters_its_sandbox_within_the_service(service):
    journal = service.run("journalctl", "-u", "inferd", "-o", "cat").stdout
    lines = [line for line in journal.splitlines() if '"worker.boxed"' in line]
    assert lines
    boxed = json.loads(lines[-1])
    assert (boxed["seccomp"], boxed["is_open"]) == (True, False)
    assert boxed["landlock"] > 0


def test_a_blocked_loop_is_ended_by_the_watchdog_and_started_again(service):
    before = service.show("MainPID")["MainPID"]
    service.run("mkdir", "-p", "/run/systemd/system/inferd.service.d")
    service.run(
        *("sh", "-c", "cat > /run/systemd/system/inferd.service.d/watchdog.conf"),
        stdin="[Service]\nWatchdogSec=2s\n",
    )
    service.run("systemctl", "daemon-reload")
    service.run("systemctl", "restart", "inferd")
    restarted = service.show("MainPID")["MainPID"]
    assert restarted != before
    service.run("kill", "-STOP", restarted)
    deadline = time.monotonic() + 120
    while service.show("NRestarts")["NRestarts"] == "0":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    service.run("systemctl", "start", "inferd")
    assert json.loads(service.run(*ASK, stdin=REQUEST + "\n").stdout)["type"] == "done"


def test_stop_drains_and_leaves_the_sockets_alone(service):
    service.run("systemctl", "stop", "inferd")
    state = service.show("ActiveState", "Result", "ExecMainStatus")
    assert state == {
        "ActiveState": "inactive",
        "Result": "success",
        "ExecMainStatus": "0",
    }
    assert service.run("pgrep", "-f", "inferd", check=False).stdout == ""
    sockets = service.run("ls", "/run/inferd").stdout.split()
    assert len([name for name in sockets if name.endswith(".sock")]) == 5


def test_the_journal_has_each_request_and_no_word_of_its_content(service):
    lines = service.run("journalctl", "-u", "inferd", "-o", "cat").stdout
    assert len(re.findall('"msg":"request_done"', lines)) >= 3
    assert "Hello" not in lines


def test_a_wrong_configuration_is_not_tried_again(service):
    service.run("mkdir", "-p", "/etc/inferd")
    service.run("sh", "-c", "echo 'nonsense = 1' > /etc/inferd/config.toml")
    started = service.run("systemctl", "start", "inferd", check=False)
    assert started.returncode != 0
    state = service.show("ActiveState", "ExecMainStatus", "NRestarts")
    assert state == {"ActiveState": "failed", "ExecMainStatus": "2", "NRestarts": "0"}
    assert "nonsense: no such key" in service.run("journalctl", "-u", "inferd").stdout


PAGE = "docs/upgrading.md"


def version(service):
    return service.run("readlink", "/opt/inferd/current").stdout.strip()


def make(service, target):
    """Type what the page says; there is no sudo in the container."""
    typed = command(PAGE, f"make {target}").removeprefix("sudo ")
    line = f"cd {ROOT} && {typed} PYTHON=/usr/bin/python3"
    return service.run("sh", "-c", line, check=False).stderr


def test_what_is_installed_can_be_verified_and_gone_back_from(service):
    service.run("rm", "-f", "/etc/inferd/config.toml")
    service.run("systemctl", "restart", "inferd")
    newer = version(service)
    assert newer.endswith("-2")
    assert "is as it was installed" in make(service, "verify")
    check = command(PAGE, "sha256sum")
    assert service.run("sh", "-c", check).stdout == ""
    assert "is in use" in make(service, "rollback")
    assert version(service) == newer.removesuffix("2") + "1"
    assert json.loads(service.run(*ASK, stdin=REQUEST + "\n").stdout)["type"] == "done"
    make(service, "rollback")
    assert version(service) == newer


def test_all_of_it_is_root_s_and_the_service_writes_to_none(service):
    others = service.run("find", "/opt/inferd", "-not", "-user", "root").stdout
    writable = ("-perm", "/022", "-not", "-type", "l")
    assert others + service.run("find", "/opt/inferd", *writable).stdout == ""
    pid = service.show("MainPID")["MainPID"]
    environ = service.run("cat", f"/proc/{pid}/environ").stdout
    assert "INFERD_MODELS=/var/lib/inferd/models\0" in environ
    assert service.run("test", "-e", "/var/cache/inferd", check=False).returncode == 1


def test_a_byte_that_was_changed_is_told(service):
    changed = "/opt/inferd/current/share/README.md"
    service.run("sh", "-c", f"cp {changed} /root/kept; echo >> {changed}")
    said = make(service, "verify")
    service.run("cp", "/root/kept", changed)
    assert "share/README.md was changed" in said
    assert "is as it was installed" in make(service, "verify")


def test_uninstalling_leaves_what_is_the_operator_s_and_says_so(service):
    page = "/usr/local/share/man/man1/inferd-serve.1"
    service.run("test", "-f", page)
    said = make(service, "uninstall")
    assert "still there: /etc/inferd, /var/lib/inferd, /var/log/inferd" in said
    gone = (
        "/opt/inferd",
        "/usr/local/bin/inferd",
        page,
        "/usr/local/share/zsh/site-functions/_inferd",
        "/etc/systemd/system/inferd.service",
    )
    for path in gone:
        assert service.run("test", "-e", path, check=False).returncode == 1
    assert service.run("test", "-d", "/etc/inferd").returncode == 0
