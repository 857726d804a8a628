"""F-56: what a remote engine, its network or a worker that asks one gives away."""

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpcore2
import msgspec
import pytest
import trio

from inferd.config.kinds.inferd import InferdSettings
from inferd.config.kinds.remote_address import parse_address
from inferd.errors import InvalidRequestError
from inferd.limits.protocol import MAX_VIA, MAX_VIA_CHARS
from inferd.resolve.options import via_of
from inferd.sandbox import landlock
from inferd.wire.requests import DescribeRequest
from inferd.worker.remote.http.network import (
    ConfiguredNetwork,
    RefusedAddressError,
    tls_context,
)
from inferd.worker.remote.inferd.api import api_of
from inferd.worker.remote.job_translation import write_request
from tests.cases import each_case
from tests.daemon.harness import MakeDaemon, mock
from tests.fakes.hub import make_certificate
from tests.fakes.remote_engine import ANSWER, RemoteEngine, sends, serving
from tests.unit.worker.remote.openai.jobs import job

KEY = "sk-f56-0123456789"


class Resolver(trio.abc.HostnameResolver):
    """Answers with these addresses, each time with the next."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = [*addresses]

    async def getaddrinfo(  # type: ignore[override]  # what is asked for
        self, _host, port, *_args, **_options
    ):
        address = self.addresses.pop(0), int(port)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address)]

    async def getnameinfo(self, sockaddr, flags):
        raise AssertionError("not asked for")


class Connected(httpcore2.TrioBackend):
    """Notes the addresses instead of connecting."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    async def connect_tcp(self, host, port, *_args, **_options):
        self.addresses.append(host)
        raise httpcore2.ConnectError("noted")


@pytest.fixture
def connected(monkeypatch) -> Connected:
    connected = Connected()
    monkeypatch.setattr(httpcore2, "TrioBackend", lambda: connected)
    return connected


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(connected):
    network = ConfiguredNetwork(parse_address("https://example.org"))
    trio.socket.set_custom_hostname_resolver(Resolver("8.8.8.8", "127.0.0.1"))
    with pytest.raises(httpcore2.ConnectError, match="noted"):
        await network.connect_tcp("example.org", 443)
    with pytest.raises(RefusedAddressError):
        await network.connect_tcp("example.org", 443)
    assert connected.addresses == ["8.8.8.8"]


@pytest.mark.parametrize(("host", "port"), [("example.com", 443), ("example.org", 80)])
async def test_no_other_host_or_port_is_connected_to(connected, host, port):
    network = ConfiguredNetwork(parse_address("https://example.org"))
    with pytest.raises(RefusedAddressError):
        await network.connect_tcp(host, port)
    with pytest.raises(RefusedAddressError):
        await network.connect_unix_socket("/run/inferd/admin.sock")
    assert connected.addresses == []


IN_THE_SANDBOX = """
import ctypes, errno, os, socket, sys
from inferd.sandbox.privileges import refuse_inspection
from inferd.worker.sandbox import WorkerSandbox, drop_privileges

refuse_inspection()
is_dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
drop_privileges()
allowed, other = map(int, sys.argv[1:])
listener = socket.socket()
WorkerSandbox().enter_remote(allowed)

def attempt(what):
    try:
        what()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

print(
    attempt(lambda: socket.create_connection(("127.0.0.1", allowed))),
    attempt(lambda: socket.create_connection(("127.0.0.1", other))),
    attempt(lambda: open("/etc/shadow")),
    attempt(lambda: listener.listen()),
    attempt(os.fork),
    is_dumpable,
)
"""


@pytest.mark.slow
def test_the_kernel_lets_such_a_worker_connect_to_one_port_and_nobody_read_its_memory():
    with serving() as one, serving() as other:
        ports = map(str, (one.port, other.port))
        done = subprocess.run(
            [sys.executable, "-c", IN_THE_SANDBOX, *ports],
            capture_output=True,
            text=True,
            check=True,
        )
    has_ports = landlock.version() >= 4
    assert done.stdout.split() == [
        "done",
        "EACCES" if has_ports else "done",
        "EACCES",
        "EPERM",
        "EPERM",
        "0",
    ]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, path = folder / "key.pem", folder / "certificate.pem"
    make_certificate(key, path)
    return key, path


@pytest.fixture
def tls_engine(certificate) -> Iterator[RemoteEngine]:
    key, path = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path, key)
    with serving(context) as engine:
        yield engine


@pytest.mark.slow
def test_a_certificate_is_verified_before_anything_is_sent(
    make_daemon: MakeDaemon, tls_engine, certificate
):
    tls_engine.script = sends(ANSWER)
    url, port = tls_engine.url, tls_engine.port
    known = {"kind": "openai", "model": "m", "ca_file": str(certificate[1])}
    backends = [
        {"name": "known", "base_url": url, **known},
        {"name": "unknown", "base_url": url, "kind": "openai", "model": "m"},
        # a name that the same certificate has not; it is no address of a remote, either
        {"name": "other", "base_url": f"https://[::ffff:127.0.0.1]:{port}", **known},
    ]
    daemon = make_daemon({"backend": backends}).start()
    for name in ("unknown", "other"):
        [error] = daemon.ask(model=name)
        assert error["code"] == "backend_unavailable"
        assert "the remote's certificate is refused" in error["message"]
    assert tls_engine.requests == []
    assert daemon.ask(model="known")[-1]["content"] == "Hello there"


def test_the_systems_certificates_are_read_before_the_sandbox_hides_them(
    certificate, short_dir, monkeypatch
):
    (short_dir / "0123abcd.0").write_bytes(certificate[1].read_bytes())
    (short_dir / "0123abcd.1").write_text("none")
    (short_dir / "README").write_bytes(certificate[1].read_bytes())
    monkeypatch.setenv("SSL_CERT_DIR", str(short_dir))
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    assert tls_context(None).cert_store_stats()["x509"] == 1


STASHING = """
import ctypes, os
from pathlib import Path
from inferd.config.kinds.kind import Credential
from inferd.engine.supervisor.keys import open_key, stash_keys

def is_dumpable():
    return ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)

credential = Credential("A_KEY", None)
print(is_dumpable())
stash_keys([credential])
print(is_dumpable())
print(Path("/proc/self/environ").read_bytes(), dict(os.environ))
for _ in range(2):  # a worker that is started again gets it, too
    print(os.pread(open_key(credential), 99, 0).decode())
"""


@pytest.mark.slow
def test_a_key_is_taken_out_of_what_the_kernel_shows_of_the_environment():
    done = subprocess.run(
        [sys.executable, "-c", STASHING],
        env={"A_KEY": KEY, "OTHER": "x"},
        capture_output=True,
        text=True,
        check=True,
    )
    before, after, environment, *keys = done.stdout.splitlines()
    # a worker whose files are not restricted could open its descriptors in /proc
    assert (before, after) == ("1", "0")
    assert "OTHER=x" in environment
    assert KEY not in environment
    assert keys == [KEY, KEY]


@pytest.mark.slow
def test_the_key_is_in_no_other_process_and_in_no_file(
    make_daemon: MakeDaemon, short_dir
):
    (short_dir / "far").write_text(f"{KEY}\n")
    with serving() as engine:
        far = {"kind": "openai", "base_url": engine.url, "model": "m"}
        daemon = make_daemon(
            {
                "backend": [
                    {"name": "a", "api_key_env": "A_KEY", **far},
                    {"name": "b", "api_key_credential": "far", **far},
                    {"name": "none", **far},
                    mock(),
                ]
            },
            environ={"A_KEY": KEY, "CREDENTIALS_DIRECTORY": str(short_dir)},
        ).start()
        heads = {}
        for name in ("a", "b", "none"):
            assert daemon.ask(model=name)[-1]["type"] == "done"
            heads[name] = engine.requests[-1][0]
    assert [KEY.encode() in heads[name] for name in heads] == [True, True, False]
    for pid, command in daemon.processes().items():
        assert KEY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        assert KEY.encode() not in command
        _, hard = _core_limit(pid)
        assert hard == "0"
        # the descriptor was closed once it was read, and no other worker has one
        assert not [
            each for each in _open_files(pid) if "far" in each or "memfd:key" in each
        ]
    assert KEY not in daemon.stderr()


def _core_limit(pid: int) -> tuple[str, str]:
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max core file size"):
            soft, hard = line.split()[4:6]
            return soft, hard
    raise AssertionError("no limit")


def _open_files(pid: int) -> list[str]:
    return [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]


WRONG_VIA = {
    f"{MAX_VIA + 1} entries": ["x"] * (MAX_VIA + 1),
    "via\\[1\\] has 0 characters": ["x", ""],
    f"has {MAX_VIA_CHARS + 1} characters": ["x" * (MAX_VIA_CHARS + 1)],
}


@each_case("reason", [*WRONG_VIA])
def test_only_so_many_daemons_pass_a_request_on(reason):
    with pytest.raises(InvalidRequestError, match=reason):
        via_of(DescribeRequest(via=WRONG_VIA[reason]))
    longest = ["x" * MAX_VIA_CHARS] * MAX_VIA
    assert via_of(DescribeRequest(via=longest)) == tuple(longest)


def test_a_worker_tells_who_has_passed_a_request_on():
    for url in ("https://example.org", "sockets:/run/inferd"):
        far = InferdSettings(name="r", base_url=url, model="m")
        request = write_request(api_of(far), far, job(via=("a", "b")), ())
        told = msgspec.json.decode(request.body).get("via", [*request.via])
        assert told == ["a", "b"]


@pytest.mark.slow
def test_a_daemon_that_asks_itself_refuses_and_goes_on(
    make_daemon: MakeDaemon, short_dir: Path
):
    far = {"name": "self", "kind": "inferd", "model": "self", "route_unnamed": True}
    daemon = make_daemon(
        {
            "listen": {"directory": str(short_dir / "run")},
            "admission": {"max_active": 1},
            "backend": [{**far, "base_url": f"sockets:{short_dir / 'run'}"}],
        }
    ).start()
    for _ in range(2):
        [refusal] = daemon.ask()
        assert refusal["code"] == "invalid_request"
        assert "has passed the request on" in refusal["message"]
