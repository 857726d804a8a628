import os
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import pytest
import trio

from inferd import surfaces
from inferd.client import asynchronous, sync
from inferd.client.connection import asynchronous as awaiting
from inferd.client.exchange import ClientError
from inferd.client.peer_check import UntrustedServerError
from inferd.doctor.check import Verdict
from inferd.doctor.runtime import check_admin
from inferd.wire.blocks import BlocksRequest, Message, TextBlock
from inferd.wire.commands import Command
from inferd.wire.requests import ChatMessage, EmbedRequest, GenerateRequest
from tests.daemon.configuration import clean_environ
from tests.daemon.users import needs_root
from tests.examples.built import HEADERS, built
from tests.examples.clients import COMMAND_S, LANGUAGES, Client
from tests.fakes.impostor import STRANGER_UID, impostor

pytestmark = [pytest.mark.slow, needs_root]

LEAVES = (
    surfaces.INFER.socket,
    surfaces.V2.socket,
    surfaces.EMBED.socket,
    surfaces.ADMIN.socket,
)
GENERATE = GenerateRequest(id="r", messages=[ChatMessage("user", "secret")])
CONVERSE = BlocksRequest(id="r", messages=[Message("user", [TextBlock("secret")])])
EMBED = EmbedRequest(id="r", input=["secret"])
STATUS = Command(command="status")


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Make the last place where sockets are looked for, before its owner does.

    ``tmp_path`` is made before, since the uid counts for that, too.
    """
    directory = Path(mkdtemp(prefix="inferd-", dir="/tmp"))  # that place
    for variable in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    uid = int.from_bytes(os.urandom(3), "big") + 100_000
    directory = directory.rename(f"/tmp/inferd-{uid}")  # noqa: S108
    monkeypatch.setattr(os, "getuid", lambda: uid)
    os.chown(directory, STRANGER_UID, STRANGER_UID)
    yield directory
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


def asked_in_turn(directory):
    """Do all that the blocking client can."""
    with sync.FrameClient(directory) as client:
        yield lambda: list(client.generate(GENERATE))
        yield lambda: list(client.converse(CONVERSE))
        yield lambda: client.embed(EMBED)
    yield lambda: list(sync.watch_status(directory, timeout_s=5))
    yield lambda: sync.command(STATUS, directory, timeout_s=5)
    yield lambda: sync.wait_until_ready(directory, timeout_s=5)


async def ask_in_turn(directory):
    """Have all that the client on trio can do refused."""
    async with asynchronous.AsyncFrameClient(directory) as client:
        for ask in (
            lambda: anext(client.generate(GENERATE)),
            lambda: anext(client.converse(CONVERSE)),
            lambda: client.embed(EMBED),
            lambda: anext(asynchronous.watch_status(directory)),
            lambda: asynchronous.command(STATUS, directory),
        ):
            with pytest.raises(UntrustedServerError):
                await ask()


@pytest.mark.parametrize("is_given", [True, False])
def test_an_impostor_at_the_last_place_hears_nothing(nowhere, is_given):
    directory = nowhere if is_given else None
    with impostor(nowhere, *LEAVES) as seen:
        for ask in asked_in_turn(directory):
            with pytest.raises(UntrustedServerError) as caught:
                ask()
            assert caught.value.uid == STRANGER_UID
            assert caught.value.path.parent == nowhere
            assert f"INFERD_TRUST_UID={STRANGER_UID}" in str(caught.value)
        trio.run(ask_in_turn, directory)
    assert seen.heard == b""


def test_who_listens_counts_though_the_directory_is_ones_own(short_dir):
    short_dir.chmod(0o755)
    run_dir = short_dir / "run"
    run_dir.mkdir()
    os.chown(run_dir, STRANGER_UID, -1)
    with impostor(run_dir, *LEAVES) as seen:
        os.chown(run_dir, 0, 0)
        for ask in asked_in_turn(run_dir):
            with pytest.raises(UntrustedServerError, match="listening process"):
                ask()
        trio.run(ask_in_turn, run_dir)
    assert seen.n_clients > 0
    assert seen.heard == b""


@pytest.mark.parametrize(
    "arguments",
    [
        *(["generate", "secret"], ["embed", "secret"], ["rerank", "secret", "b"]),
        *(["status"], ["status", "--watch"], ["drain"], ["cancel", "secret"]),
    ],
    ids=" ".join,
)
def test_a_command_says_whom_it_refuses_and_how_to_allow_it(nowhere, arguments):
    with impostor(nowhere, *LEAVES, "infer.rerank.sock") as seen:
        command = [sys.executable, "-m", "inferd", *arguments, "--directory", nowhere]
        environ = clean_environ() | {"HOME": "/nonexistent"}
        ended = subprocess.run(
            command,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert seen.heard == b""
    assert ended.returncode == 2
    assert f"uid {STRANGER_UID}" in ended.stderr
    assert f"INFERD_TRUST_UID={STRANGER_UID}" in ended.stderr


def test_the_doctor_tells_an_impostor_from_a_daemon(nowhere):
    with impostor(nowhere, *LEAVES) as seen:
        finding = check_admin(nowhere)
    assert seen.heard == b""
    assert finding.verdict is Verdict.FAILED
    assert finding.detail.startswith(f"{nowhere}/{surfaces.ADMIN.socket}: the owner of")
    assert f"INFERD_TRUST_UID={STRANGER_UID}" in finding.detail


@pytest.mark.parametrize("allow", ["argument", "variable"])
def test_whom_one_names_may_answer(nowhere, monkeypatch, allow):
    named = [STRANGER_UID] if allow == "argument" else []
    if allow == "variable":
        monkeypatch.setenv("INFERD_TRUST_UID", f"5,{STRANGER_UID}")
    with impostor(nowhere, *LEAVES) as seen:
        with sync.FrameClient(timeout_s=0.1, trusted_uids=named) as client:
            with pytest.raises(TimeoutError):
                list(client.generate(GENERATE))
    assert b"secret" in seen.heard


def test_a_variable_that_names_nobody_is_an_error(monkeypatch, short_dir):
    monkeypatch.setenv("INFERD_TRUST_UID", "ada")
    with pytest.raises(ClientError, match="not a list of uids: 'ada'"):
        sync.connect(surfaces.INFER.socket, short_dir)


def test_a_symlink_of_others_leads_to_no_other_service_of_ones_own(short_dir):
    """As to the journal's socket: root listens there, and would keep the prompt."""
    short_dir.chmod(0o755)
    group_dir = short_dir / "run"
    group_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "journal"))
        listener.listen()
        (group_dir / surfaces.INFER.socket).symlink_to(short_dir / "journal")
        os.lchown(group_dir / surfaces.INFER.socket, STRANGER_UID, -1)
        with pytest.raises(UntrustedServerError, match="symlink"):
            sync.connect(surfaces.INFER.socket, group_dir)
        os.lchown(group_dir / surfaces.INFER.socket, 0, -1)
        sync.connect(surfaces.INFER.socket, group_dir).close()
        group_dir.chmod(0o1777)
        with pytest.raises(UntrustedServerError, match="world-writable.* o-w"):
            sync.connect(surfaces.INFER.socket, group_dir)


async def connect_on_trio(leaf, directory):
    await (await awaiting.connect(leaf, directory)).aclose()


@pytest.mark.parametrize("is_on_trio", [False, True], ids=["blocking", "trio"])
def test_a_socket_that_is_swapped_once_it_was_looked_at_is_used_all_the_same(
    short_dir, monkeypatch, is_on_trio
):
    """As one of the directory's group can, by a link to another service of root's."""
    (short_dir / "run").mkdir()
    path, journal = short_dir / "run" / surfaces.INFER.socket, short_dir / "journal"
    connect = socket.socket.connect

    def swap_and_connect(self, address):
        path.unlink()
        path.symlink_to(journal)
        connect(self, address)

    with socket.socket(socket.AF_UNIX) as right, socket.socket(socket.AF_UNIX) as other:
        for listener, place in ((right, path), (other, journal)):
            listener.bind(str(place))
            listener.listen()
            listener.setblocking(False)
        monkeypatch.setattr(socket.socket, "connect", swap_and_connect)
        if is_on_trio:
            trio.run(connect_on_trio, surfaces.INFER.socket, short_dir / "run")
        else:
            sync.connect(surfaces.INFER.socket, short_dir / "run").close()
        with pytest.raises(BlockingIOError):
            other.accept()
        right.accept()[0].close()


@pytest.mark.parametrize("uid", [2**31, 2**32 - 3])
def test_whom_one_names_may_answer_by_any_uid_there_is(short_dir, uid):
    short_dir.chmod(0o755)
    os.chown(short_dir, uid, -1)
    with impostor(short_dir, surfaces.INFER.socket, uid=uid):
        sync.connect(surfaces.INFER.socket, short_dir, trusted_uids=[uid]).close()


@pytest.fixture(scope="module")
def program():
    """The example in C++; it is found before a test leaves no place to look for it."""
    return built("g++", HEADERS / "chat.cpp", "plain")


def test_the_client_in_cpp_sends_nothing_to_an_impostor(program, nowhere):
    with impostor(nowhere, *LEAVES) as seen:
        refused = subprocess.run(
            [program, nowhere],
            env=clean_environ(),
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
    assert seen.heard == b""
    assert refused.returncode == 1
    assert refused.stderr == (
        f"Connection refused: uid {STRANGER_UID} listens; to trust it, "
        f"set INFERD_TRUST_UID={STRANGER_UID}\n"
    )


@pytest.mark.parametrize("name", LANGUAGES)
def test_an_example_sends_nothing_to_an_impostor(nowhere, tmp_path, name):
    client = Client(name, tmp_path)
    with impostor(nowhere, *LEAVES, "infer.rerank.sock") as seen:
        ended = client.run(str(nowhere))
    assert seen.heard == b""
    assert ended.returncode == 1
    assert "INFERD_TRUST_UID" in ended.stderr
