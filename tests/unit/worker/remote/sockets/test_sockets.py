from pathlib import Path

import pytest
import trio

from inferd.config.kinds.inferd import InferdSettings
from inferd.config.kinds.remote_address import parse_address
from inferd.peer_credentials import PeerCredentials
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.http.network import ConfiguredNetwork
from inferd.worker.remote.sockets import peer
from inferd.worker.remote.sockets.exchange import SocketConnections

OTHER_UID = 4242


def connections(directory: Path, **fields) -> SocketConnections:
    settings = InferdSettings(
        name="r", base_url=f"sockets:{directory}", model="m", **fields
    )
    return SocketConnections(directory, settings)


def listened_by_other(monkeypatch) -> None:
    other = PeerCredentials(pid=1, uid=OTHER_UID, gid=OTHER_UID)
    monkeypatch.setattr(peer, "credentials_of", lambda _: other)


async def bound(path: Path) -> trio.SocketListener:
    sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    await sock.bind(str(path))
    sock.listen()
    return trio.SocketListener(sock)


async def ask(
    far: SocketConnections, form: AnswerForm = AnswerForm.DOCUMENT
) -> list[bytes]:
    async with far.ask(RemoteRequest("v2.sock", b"{}\n", form)) as (parts, _):
        return [part async for part in parts]


async def test_a_line_is_answered_by_frames_one_by_one(short_dir, nursery):
    lines: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        lines.append(await stream.receive_some(100))
        await stream.send_all(b'{"a": 1}\n{"b": ')
        await stream.send_all(b"2}\n")
        await stream.aclose()

    listener = await bound(short_dir / "v2.sock")
    nursery.start_soon(trio.serve_listeners, serve, [listener])
    far = connections(short_dir)
    for form in (AnswerForm.LINES, AnswerForm.DOCUMENT):
        assert await ask(far, form) == [b'{"a": 1}', b'{"b": 2}']
    assert lines == [b"{}\n", b"{}\n"]


async def test_nothing_is_sent_where_another_user_listens(short_dir, monkeypatch):
    listened_by_other(monkeypatch)
    async with await bound(short_dir / "v2.sock") as listener:
        with pytest.raises(RemoteError, match=f"uid {OTHER_UID} listens at its socket"):
            await ask(connections(short_dir))
        far = ConfiguredNetwork(parse_address(f"unix:{short_dir}/v2.sock"))
        with pytest.raises(peer.UntrustedListenerError):
            await far.connect_unix_socket(f"{short_dir}/v2.sock")
        for _ in range(2):
            async with await listener.accept() as stream:
                assert await stream.receive_some(100) == b""
        trusted = ConfiguredNetwork(
            parse_address(f"unix:{short_dir}/v2.sock"), [OTHER_UID]
        )
        await (await trusted.connect_unix_socket(f"{short_dir}/v2.sock")).aclose()


async def test_a_remote_that_is_slow_or_says_too_much_is_left(
    short_dir, nursery, autojump_clock
):
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(100)
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await stream.send_all(b"x" * 1000)
                await trio.sleep(1)

    listener = await bound(short_dir / "v2.sock")
    nursery.start_soon(trio.serve_listeners, serve, [listener])
    with pytest.raises(RemoteError, match="line of over 2048 bytes"):
        await ask(connections(short_dir, max_event_bytes=2048), AnswerForm.LINES)
    with pytest.raises(RemoteError, match="has over 4096 bytes"):
        await ask(connections(short_dir, max_answer_bytes=4096), AnswerForm.LINES)
    with pytest.raises(RemoteError, match="too slow: no answer within 5 s"):
        await ask(connections(short_dir, first_token_timeout_s=5, connect_timeout_s=1))
