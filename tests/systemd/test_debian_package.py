"""Our Debian package in a bare Debian: installed, upgraded under load, removed, purged."""

import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from inferd import __version__
from tests.documents import pages
from tests.systemd.bare_debian import (
    BROKEN,
    FAST,
    NEWER,
    bare_debian,
    missing_tools,
    packages,
    without_libraries,
)
from tests.systemd.container import Container, booted, missing
from tests.systemd.test_activation import CONFIG, storm
from tools.debian.__main__ import package

REASON = missing() or missing_tools()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.systemd,
    pytest.mark.model,
    pytest.mark.skipif(bool(REASON), reason=f"no container: {REASON}"),
]

PAGE = "docs/packages.md"
SERVICE_PAGE = "docs/service.md"
BRIDGE = "/run/inferd-bridge/bridge.sock"
N_BRIDGE_CLIENTS = 4
APT = "DEBIAN_FRONTEND=noninteractive apt-get -q -y"
FILES = (
    "find / -xdev ( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp"
    " -o -path /var/cache -o -path /var/log/journal -o -path /root ) -prune -o -print"
)
ANNOUNCED = (
    r"/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?"
    r"|/var/l(ib|og)/(apt|dpkg)\b.*"
    r"|/var/(lib/systemd/linger|tmp/systemd-private-.*)"
)
"""Files with the users that stay, apt's own notes, and what logind makes once it runs."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A bare Debian that has both packages in a directory."""
    with bare_debian(tmp_path_factory.mktemp("debian")) as root:
        (root / "srv/packages").mkdir(parents=True)
        packages(root / "srv/packages")
        shutil.copy(Path(__file__).with_name("storm.py"), root / "opt")
        with booted(root) as container:
            yield container


def sh(machine: Container, command: str, timeout_s: float = 300) -> str:
    """Run a command of a shell, as root and without sudo, which a bare Debian lacks."""
    done = machine.run(
        *("env", "HOME=/root", "sh", "-c", f"cd /srv/packages && {command}"),
        check=False,
        timeout_s=timeout_s,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def typed(machine: Container, words: str, page: str = PAGE) -> str:
    """Type the command of the document that has some words."""
    command = (
        pages.command(page, words).replace("sudo ", "").replace("apt ", f"{APT} ", 1)
    )
    return sh(machine, command.replace("dist/", "./"))


def files(machine: Container) -> set[str]:
    return set(machine.run(*FILES.split()).stdout.splitlines())


def version(machine: Container) -> str:
    return sh(machine, "inferd --version").split()[1]


def test_lintian_has_nothing_to_say_of_what_is_ours(tmp_path):
    ours = without_libraries(package(FAST), tmp_path)
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", ours],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_install_ask_upgrade_go_back_remove_and_purge(machine):
    before = files(machine)
    install_and_ask(machine)
    look_at_what_is_installed(machine)
    start_the_bridge(machine)
    upgrade_and_go_back_under_load(machine)
    upgrade_to_what_does_not_start_and_go_back(machine)
    remove_and_purge(machine, before)


def install_and_ask(machine):
    """Three commands to an answer; nothing is asked."""
    said = typed(machine, f"apt install ./inferd_{__version__}")
    assert "Traceback" not in said
    assert machine.show("ActiveState") == {"ActiveState": "inactive"}
    typed(machine, "model pull --system embedded:chat")
    answer = typed(machine, "inferd generate")
    assert answer.strip()
    assert machine.show("ActiveState") == {"ActiveState": "active"}


def look_at_what_is_installed(machine):
    """It belongs to root, opens no port, and what documents it is where it is looked for."""
    assert sh(machine, "systemctl is-enabled inferd.socket") == "enabled\n"
    assert (
        sh(machine, "systemctl is-active inferd-bridge.socket || true") == "inactive\n"
    )
    assert "8313" not in sh(machine, "cat /proc/net/tcp /proc/net/tcp6")
    assert (
        sh(machine, "find /usr/lib/inferd -not -user root -o -perm /022 -not -type l")
        == ""
    )
    for page in ("inferd-model-pull(1)", "inferd.toml(5)"):
        shown = sh(machine, f"man {page.partition('(')[0]} | cat")
        assert shown.startswith(page.upper())
    loads = ". /usr/share/bash-completion/bash_completion; _completion_loader inferd"
    assert "_shtab_inferd" in sh(machine, f"bash -c '{loads}; complete -p inferd'")
    assert sh(machine, "dpkg --verify inferd") == ""
    assert (
        sh(machine, "systemd-analyze verify inferd.service inferd-bridge.service") == ""
    )


def start_the_bridge(machine):
    """The package leaves that to the operator, by the commands of the page."""
    machine.run("sh", "-c", "cat > /etc/inferd/config.toml", stdin=CONFIG)
    sh(machine, "systemctl restart inferd")
    typed(machine, "enable --now inferd-bridge.socket", SERVICE_PAGE)
    sh(machine, "systemctl start inferd-bridge")


@contextmanager
def clients(machine):
    """Programs that ask the daemon and the bridge: none is refused, and none fails."""
    token = typed(machine, "token add ada --system", SERVICE_PAGE).splitlines()[0]
    with (
        storm(machine) as asked,
        storm(machine, BRIDGE, N_BRIDGE_CLIENTS, token) as bridged,
    ):
        yield
    sh(machine, "inferd bridge token remove ada --system")
    for outcomes in (asked, bridged):
        assert set(outcomes) == {"done", "longest_s"}, outcomes
        assert outcomes["done"] > 20


def upgrade_and_go_back_under_load(machine):
    """No request of many is refused or fails, in both directions."""
    with clients(machine):
        before = pids(machine)
        typed(machine, f"apt install ./inferd_{NEWER}")
        assert version(machine) == NEWER
        assert not set(before) & set(pids(machine))
        typed(machine, "apt install --allow-downgrades")
        assert version(machine) == __version__


def pids(machine: Container) -> list[str]:
    """Give the processes of both services, which run."""
    found = []
    for unit in ("inferd.service", "inferd-bridge.service"):
        shown = machine.show("ActiveState", "MainPID", unit=unit)
        assert shown["ActiveState"] == "active", unit
        found.append(shown["MainPID"])
    return found


def upgrade_to_what_does_not_start_and_go_back(machine):
    """apt says so and how to go back; clients that come meanwhile are answered after that."""
    with clients(machine):
        pids(machine)
        said = sh(machine, f"{APT} install ./inferd_{BROKEN}_*.deb")
        for unit in ("inferd.service", "inferd-bridge.service"):
            assert (
                f"{unit} does not start; journalctl -u {unit} has the reason." in said
            )
        way_back = pages.command(PAGE, "apt install --allow-downgrades")
        assert f"{way_back.removeprefix('sudo ')}\n" in said
        assert installed(machine) == BROKEN
        typed(machine, "apt install --allow-downgrades")
        assert installed(machine) == version(machine) == __version__
        pids(machine)
    assert sh(machine, "test ! -e /run/inferd-upgrade") == ""


def installed(machine: Container) -> str:
    """Give the package's version as dpkg has it."""
    return sh(machine, "dpkg-query --show --showformat='${Version}' inferd")


def remove_and_purge(machine, before):
    """What stays after the one is said; after the other nothing but users is left."""
    typed(machine, "apt remove inferd")
    for path in (
        "/etc/inferd/config.toml",
        "/var/lib/inferd/models/blobs",
        "/var/log/inferd",
    ):
        sh(machine, f"test -e {path}")
    assert (
        sh(machine, "test ! -e /usr/lib/inferd && ls /run | grep inferd || true") == ""
    )
    said = typed(machine, "apt purge inferd")
    assert "Removing /var/lib/inferd\n" in said
    sh(machine, f"{APT} autoremove --purge")
    left = {
        path for path in files(machine) - before if not re.fullmatch(ANNOUNCED, path)
    }
    assert left == set()
    assert before - files(machine) == set()
