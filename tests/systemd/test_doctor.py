"""A service that was broken on purpose: the doctor names it, and its hint mends it."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.systemd.container import Container, booted, missing, overlay, place

REASON = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.systemd,
    pytest.mark.skipif(bool(REASON), reason=f"no container: {REASON}"),
]

PATIENCE_S = 120.0
INFERD = "/usr/local/bin/inferd"
CONFIG = '[[backend]]\nname = "mock"\nkind = "mock"\n'
DROP_IN = "/etc/systemd/system/inferd.service.d/mine.conf"
UNITS = "/etc/systemd/system"
RUN_UNITS = "/run/systemd/system"
CONFIG_FILE = "/etc/inferd/config.toml"
OFFLOADED = """\
[[backend]]
name = "chat"
kind = "llamacpp"
model = "/opt/none.gguf"
n_gpu_layers = 9
"""
REQUEST = '{"id":"a","messages":[{"role":"user","content":"hello"}],"stream":false}\n'


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Iterator[Container]:
    with overlay(tmp_path_factory.mktemp("machine")) as root:
        place(root)
        (root / "etc/inferd").mkdir(exist_ok=True)
        (root / "etc/inferd/config.toml").write_text(CONFIG)
        with booted(root) as container:
            container.run("systemctl", "enable", "--now", "inferd.socket")
            yield container


@pytest.fixture(autouse=True)
def service(machine) -> Iterator[None]:
    """The service runs before a test, and is well after it."""
    restarted = machine.run("systemctl", "restart", "inferd", check=False)
    assert restarted.returncode == 0, machine.run("journalctl", "-n", "40").stdout
    yield
    assert bad(machine) == {}
    frame = machine.run("nc", "-N", "-U", "/run/inferd/infer.sock", stdin=REQUEST)
    assert json.loads(frame.stdout)["type"] == "done"


def findings(machine: Container, *options: str) -> dict[str, dict[str, Any]]:
    command = (INFERD, "doctor", "--json", *(options or ("--system",)))
    output = machine.run(*command, check=False).stdout
    return {each["check"]: each for each in json.loads(output)["findings"]}


def bad(machine: Container) -> dict[str, str]:
    """Give what is not well, but for packages: no model library is in the container."""
    return {
        name: each["detail"]
        for name, each in findings(machine).items()
        if each["verdict"] in ("failed", "warning") and name not in ("packages", "cpu")
    }


def named(machine: Container, check: str, word: str) -> str:
    """Check that the doctor names a break; return its hint."""
    finding = findings(machine)[check]
    assert finding["verdict"] in ("failed", "warning"), finding
    assert word in finding["detail"]
    return str(finding["hint"])


def follow(machine: Container, hint: str) -> None:
    """Type what a hint says, as root."""
    machine.run("sh", "-c", hint.replace("sudo ", ""))


def eventually(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def drop_in(machine: Container, line: str) -> None:
    machine.run("mkdir", "-p", DROP_IN.rpartition("/")[0])
    machine.run("sh", "-c", f"cat > {DROP_IN}", stdin=f"[Service]\n{line}\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "inferd", check=False)


def test_a_worker_that_dies_again_and_again_is_named_and_a_restart_mends_it(machine):
    def kill() -> bool:
        machine.run("pkill", "-KILL", "-f", "inferd[.]worker", check=False)
        status = machine.run(INFERD, "status", check=False).stdout
        return "breaker_open" in status

    assert eventually(kill)
    hint = named(machine, "admin", "a worker died again and again")
    assert hint == "sudo systemctl restart inferd.service"
    follow(machine, hint)


def test_a_lock_that_another_program_holds_is_named(machine):
    machine.run("systemctl", "stop", "inferd")
    program = "import fcntl,time; f=open('/run/inferd/inferd.lock'); fcntl.flock(f,2);"
    with machine.start("python3", "-c", f"{program} time.sleep(999)") as holder:
        try:
            hint = ""

            def is_named() -> bool:
                nonlocal hint
                finding = findings(machine)["lock"]
                hint = finding["hint"]
                return "is no daemon" in finding["detail"]

            assert eventually(is_named)
            assert hint.startswith("kill ")
            follow(machine, hint)
            holder.wait(PATIENCE_S)
        finally:
            holder.kill()
    machine.run("systemctl", "restart", "inferd")


def test_a_full_disk_is_named_and_pruning_mends_it(machine):
    store = "/var/lib/inferd/models"
    machine.run("mkdir", "-p", store)
    machine.run("mount", "-t", "tmpfs", "-o", "size=100m,mode=755", "tmpfs", store)
    try:
        machine.write_model("/root/m.gguf")
        words = "model import --system /root/m.gguf --name me/m"
        machine.run("sh", "-c", f"{INFERD} {words}")
        left = f"{store}/blobs/{'0' * 64}"
        machine.run("sh", "-c", f"head -c 80M /dev/zero > {left}", check=False)
        hint = named(machine, "disk", f"free at {store}")
        assert hint == "sudo inferd model prune --system"
        follow(machine, f"{hint} --yes")
        assert bad(machine) == {}
    finally:
        machine.run("systemctl", "stop", "inferd")  # a start copies what is mounted
        machine.run("umount", store)
        machine.run("systemctl", "start", "inferd")


def test_a_log_directory_that_the_service_may_not_write_to_is_named(machine):
    machine.run("chown", "root", "/var/log/inferd")
    hint = named(machine, "log-directory", "belongs to uid 0")
    follow(machine, hint)


def test_a_missing_group_is_named_and_made_again(machine):
    machine.run("cp", "/etc/group", "/root/group")
    machine.run("sed", "-i", "/^inferd:/d", "/etc/group")
    machine.run("systemctl", "restart", "inferd.socket", check=False)
    hint = named(machine, "accounts", "the group inferd does not exist")
    follow(machine, hint)


def test_a_drop_in_that_starts_nothing_is_named_and_set_aside(machine):
    drop_in(machine, "ExecStart=\nExecStart=/opt/inferd/missing serve")
    hint = named(machine, "unit", DROP_IN)
    follow(machine, hint)
    assert machine.run("ls", DROP_IN.rpartition("/")[0]).stdout == "mine.conf.off\n"


def test_a_word_that_systemd_does_not_know_is_named_and_set_aside(machine):
    drop_in(machine, "Nonsense=1")
    hint = named(machine, "unit", "Nonsense")
    follow(machine, hint)


def test_a_sandbox_that_is_weaker_than_the_machine_s_is_named(machine):
    drop_in(machine, "SystemCallFilter=~landlock_restrict_self")
    hint = named(machine, "sandbox-in-force", "can do more than it needs to")
    assert findings(machine)["box"]["verdict"] == "ok"
    follow(machine, hint)


def test_a_group_without_memory_is_named_and_widened(machine):
    drop_in(machine, "MemoryMax=300M")
    try:
        hint = named(machine, "limits", "control group 300 MiB (inferd.service)")
        follow(machine, hint)
        assert bad(machine) == {}
    finally:
        machine.run("rm", "-r", DROP_IN.rpartition("/")[0])
        machine.run("systemctl", "daemon-reload")


def test_a_slice_without_memory_is_named_and_widened(machine):
    places = [f"{directory}/system.slice.d" for directory in (RUN_UNITS, UNITS)]
    machine.run("mkdir", "-p", places[0])
    text = "[Slice]\nMemoryMax=300M\n"
    machine.run("sh", "-c", f"cat > {places[0]}/mine.conf", stdin=text)
    machine.run("systemctl", "daemon-reload")
    try:
        hint = named(machine, "limits", "the control group 300 MiB (system.slice)")
        follow(machine, hint)
        assert bad(machine) == {}
    finally:
        machine.run("rm", "-rf", *places)
        machine.run("systemctl", "daemon-reload")


def test_devices_that_the_unit_hides_are_named_and_allowed(machine):
    """A file stands for the node, since a container may not make one."""
    machine.run("sh", "-c", "mkdir -p /dev/dri; touch /dev/dri/renderD128")
    machine.run("cp", "/etc/inferd/config.toml", "/root/before.toml")
    machine.run("sh", "-c", "cat > /etc/inferd/config.toml", stdin=OFFLOADED)
    drop_in = f"{UNITS}/inferd.service.d/gpu.conf"
    try:
        hint = named(machine, "driver", "inferd.service hides /dev/dri/renderD128")
        machine.run("sh", "-c", hint.replace("sudo ", ""), check=False)  # no model
        assert "hides" not in findings(machine)["driver"]["detail"]
        machine.run("rm", "-r", "/dev/dri")
        hint = named(machine, "driver", "no driver has made a device")
        assert "n_gpu_layers = 0 in [[backend]] chat" in hint
        machine.run("sed", "-i", "s/^n_gpu_layers.*/n_gpu_layers = 0/", CONFIG_FILE)
        assert findings(machine)["driver"]["verdict"] == "ok"
    finally:
        machine.run("sh", "-c", f"cp /root/before.toml {CONFIG_FILE}; rm -f {drop_in}")
        machine.run("rm", "-rf", "/dev/dri")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "restart", "inferd")


def test_too_few_open_files_are_named_and_raised(machine):
    drop_in(machine, "LimitNOFILE=200")
    try:
        hint = named(machine, "limits", "open files 200, ")
        follow(machine, hint)
        assert bad(machine) == {}
    finally:
        machine.run("rm", "-r", DROP_IN.rpartition("/")[0])
        machine.run("systemctl", "daemon-reload")


def test_a_configuration_that_the_service_may_not_read_is_named(machine):
    machine.run("chmod", "600", "/etc/inferd/config.toml")
    machine.run("systemctl", "restart", "inferd", check=False)
    hint = named(machine, "config", "may not read /etc/inferd/config.toml")
    follow(machine, hint)


def test_a_configuration_with_an_error_is_named_with_its_key(machine):
    machine.run("sed", "-i", "1i nonsense = 1", "/etc/inferd/config.toml")
    machine.run("systemctl", "restart", "inferd", check=False)
    assert "nonsense" in findings(machine)["unit"]["detail"]
    hint = named(machine, "config", "nonsense")
    _, _, command = hint.partition("correct it, then: ")
    machine.run("sed", "-i", "1d", "/etc/inferd/config.toml")
    follow(machine, command)


def test_an_instance_without_its_file_is_named_and_made(machine):
    machine.run("systemctl", "start", "inferd@third.socket")
    try:
        option = ("--instance", "third")
        finding = findings(machine, *option)["config"]
        assert "/etc/inferd/third.toml: No such file" in finding["detail"]
        follow(machine, finding["hint"])
        assert findings(machine, *option)["config"]["verdict"] == "ok"
    finally:
        machine.run("systemctl", "stop", "inferd@third.socket")


def test_each_service_is_told_in_short_and_nothing_is_started(machine):
    machine.run("systemctl", "start", "inferd@second.socket")
    try:
        machine.run("systemctl", "stop", "inferd")
        found = findings(machine, "--config", "/etc/inferd/config.toml")
        assert "service[inferd]" not in found
        output = machine.run(INFERD, "doctor", "--json", check=False).stdout
        told = {
            each["check"]: each["detail"]
            for each in json.loads(output)["findings"]
            if each["check"].startswith("service")
        }
        assert told == {
            f"service[{name}]": f"{name}.service is stopped; the next request starts it"
            for name in ("inferd", "inferd@second")
        }
        assert bad(machine) == {}
        assert machine.show("ActiveState") == {"ActiveState": "inactive"}
    finally:
        machine.run("systemctl", "stop", "inferd@second.socket")
