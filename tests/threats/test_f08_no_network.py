import ast
import re
from pathlib import Path

import pytest

from tests.daemon.harness import mock
from tests.fakes.in_worker_sandbox import try_in_sandbox
from tests.fakes.source import calls, imports, modules, names

NAMES = (
    r"\b(AF_INET6?|PF_INET6?|AF_VSOCK|open_tcp\w*|serve_tcp|open_ssl\w*|serve_ssl\w*"
    r"|create_connection|create_server|getaddrinfo|connect_tcp\w*|create_tcp\w*)"
)
NETWORK = re.compile(f"{NAMES}$")
LIBRARIES = {"http", "urllib", "ssl", "ftplib", "smtplib", "socketserver", "xmlrpc"}
LIBRARIES |= {"aiohttp", "anyio", "asyncio", "grpc", "httpx", "requests", "urllib3"}
LIBRARIES |= {"httpcore2", "httpx2"}
WRITTEN = re.compile(rf"{NAMES}|(import|from)\s.*\b({'|'.join(LIBRARIES)})\b")
APART = ("downloader/", "bridge/", "tool_host/", "fleet/", "worker/remote/")
"""Processes that a person starts, and the daemon never does: those of `inferd model pull`,
`inferd bridge`, with its servers of tools, and `inferd fleet`. And the workers that ask remote
engines, which have a network: F-56."""
TRIES = "sandbox/network.py"
"""Tries whether there is a network, before the daemon gives it up: F-57."""
NAMED = {
    "worker/sandbox/profiles.py": {"AF_INET", "AF_INET6"},
    TRIES: {"AF_INET"},
    "client/library/async_live.py": {"connect_tcp"},
    "client/library/live_http.py": {"connect_tcp"},
}
"""What those workers may use, what is tried, and how live sound gets to a bridge."""
OF_CLIENTS = ("client/connection/loop.py", "client/library/")
"""The client library under asyncio: anyio waits there, for sockets of the Unix family."""
OF_BRIDGES = (
    *("client/callback/", "client/connection/http_socket.py"),
    "client/library/",
)
"""Clients that are given the URL of a bridge ask it, and verify its certificate."""
STARTED_BY_PEOPLE = (
    *("cli/chat/", "cli/commands/bridge.py", "cli/fleet/", "doctor/", "management/"),
)
"""What imports them: commands, and the bridge's helper; nothing that the daemon imports."""
TABLES = ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp")


def test_no_module_names_a_network():
    seen = dict(modules(WRITTEN))
    assert seen.keys() >= NAMED.keys()
    for module, tree in seen.items():
        if module.startswith(APART):
            continue
        found = {name for name in names(tree) if NETWORK.search(name)}
        expected = NAMED.get(module, set())
        assert {name.rpartition(".")[2] for name in found} == expected, module
        roots = {
            name.split(".")[0]
            for name in imports(tree)
            if not name.startswith("urllib.parse")
        }
        waits = {"anyio"} if module.startswith(OF_CLIENTS) else set()
        asks = {"httpcore2", "ssl"} if module.startswith(OF_BRIDGES) else set()
        assert roots & LIBRARIES <= waits | asks, module


def test_nothing_imports_what_may_connect():
    packages = tuple(f"inferd.{part[:-1].replace('/', '.')}" for part in APART)
    last = "|".join(part.split("/")[-2] for part in APART)
    users = [
        module
        for module, tree in modules(rf"\b({last})\b")
        if not module.startswith(APART)
        and any(name.startswith(packages) for name in imports(tree))
    ]
    assert users
    assert [each for each in users if not each.startswith(STARTED_BY_PEOPLE)] == []


def test_every_socket_is_a_unix_socket():
    sockets = [
        call
        for module, tree in modules(r"socket\.socket\b")
        if not module.startswith((*APART, TRIES))
        for call in calls(tree, "socket.socket")
    ]
    assert sockets
    for call in sockets:
        family = ast.unparse(call.args[0]) if call.args else ""
        has_descriptor = any(keyword.arg == "fileno" for keyword in call.keywords)
        assert family.endswith("AF_UNIX") or has_descriptor, ast.unparse(call)


def test_the_search_would_find_one():
    tree = ast.parse("import http.client\nsocket.socket()\nsocket.AF_INET\nopen_tcp_x")
    assert [each for each in names(tree) if NETWORK.search(each)]
    assert "http.client" in imports(tree)
    [call] = calls(tree, "socket.socket")
    assert call.args == []


def inodes_of(pid: int) -> set[str]:
    """Find the sockets that a process has."""
    links = [link_of(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def link_of(fd: Path) -> str:
    """Tell what a descriptor is; nothing where it was closed since it was listed."""
    try:
        return str(fd.readlink())
    except FileNotFoundError:
        return ""


def network_inodes(pid: int) -> set[str]:
    """Find the network sockets of a process's machine."""
    tables = [Path(f"/proc/{pid}/net/{name}") for name in TABLES]
    lines = [
        line.split()
        for table in tables
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    ]
    return {fields[9] for fields in lines}


@pytest.mark.slow
def test_code_that_is_run_in_a_worker_opens_no_socket(tmp_path):
    found = try_in_sandbox(tmp_path)
    kinds = ("network", "datagram", "Unix", "netlink")
    assert found["boxed"]["seccomp"]
    assert {found[f"open a {kind} socket"] for kind in kinds} == {"EPERM"}
    assert found["make a ring"] == "EPERM"


@pytest.mark.slow
def test_a_running_daemon_and_its_worker_have_no_network_socket(make_daemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    daemon.ask()
    [worker] = daemon.worker_pids()
    for pid in (daemon.pid, worker):
        assert inodes_of(pid) & network_inodes(pid) == set()
    assert len(inodes_of(daemon.pid)) >= 3  # two listeners and a worker's pipe
    assert len(inodes_of(worker)) == 1
