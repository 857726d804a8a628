"""Somebody else listens where a client looks for its daemon."""

import os
import shutil
import socket
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Final

from attack.probe import Probe
from attack.programs import as_user, run
from attack.scene import Scene, SkippedError, person
from attack.target import is_root, python_of
from attack.users import VICTIM
from inferd import surfaces

KIND: Final = "clients"
PROMPT: Final = "the-lighthouse-keepers-lamp"
LEAVES: Final = (
    surfaces.INFER.socket,
    surfaces.V2.socket,
    surfaces.EMBED.socket,
    surfaces.ADMIN.socket,
)
READ_BYTES: Final = 1 << 16
POLL_S: Final = 0.02
PATIENCE_S: Final = 20.0
_ASK: Final = f"""
from inferd import surfaces
from inferd.wire.requests import ChatMessage, GenerateRequest
request = GenerateRequest(messages=[ChatMessage("user", "{PROMPT}")])
"""
_SYNC: Final = f"""{_ASK}
from inferd.client.sync import FrameClient
with FrameClient(timeout_s=2) as client:
    list(client.generate(request))
"""
_ASYNC: Final = f"""{_ASK}
import trio
from inferd.client.asynchronous import AsyncFrameClient
async def main():
    with trio.fail_after(2):
        async with AsyncFrameClient() as client:
            async for _ in client.generate(request):
                pass
trio.run(main)
"""
PROGRAMS: Final = {
    "inferd generate": ("-m", "inferd", "generate", PROMPT),
    "inferd generate, told where": (
        *("-m", "inferd", "generate", PROMPT),
        *("--directory", f"/tmp/inferd-{VICTIM}"),  # noqa: S108  # the impostor's
    ),
    "inferd embed": ("-m", "inferd", "embed", PROMPT),
    "the blocking client": ("-c", _SYNC),
    "the client on trio": ("-c", _ASYNC),
    "the example in Python": ("protocol/examples/python/client.py",),
}
_EXAMPLE: Final = "the example in Python"
_SENT_BY_EXAMPLE: Final = b'"messages"'


def attacks() -> Iterator[Probe]:
    """Give all of them."""
    yield Probe(
        name="impostor",
        kind=KIND,
        about="listens at /tmp/inferd-UID before the daemon of that user's does",
        try_in=_impose,
    )


def _impose(scene: Scene) -> None:
    if not is_root():
        raise SkippedError("needs root, to be two users")
    directory = Path(f"/tmp/inferd-{VICTIM}")  # noqa: S108  # where the client looks
    if directory.exists():
        raise SkippedError(f"{directory} is there already")
    try:
        for name, arguments in PROGRAMS.items():
            with person() as impostor:
                impostor.begin(listen, directory)
                impostor.result()  # it listens
                _ask(scene, name, arguments)
                impostor.tell("stop")
                received = impostor.result()
            mark = _SENT_BY_EXAMPLE if name == _EXAMPLE else PROMPT.encode()
            scene.require(
                f"{name} sends nothing to an impostor",
                mark not in received,
                f"{len(received)} bytes were received, the prompt among them",
            )
            shutil.rmtree(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _ask(scene: Scene, name: str, arguments: tuple[str, ...]) -> None:
    command = [*as_user(VICTIM), python_of(scene.checkout), *arguments]
    environ = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    ended = run(["timeout", "5", *command], cwd=scene.checkout, environ=environ)
    scene.notes.append(f"{name}: {_last(ended.stderr)}")


def _last(text: str) -> str:
    return "; ".join(text.strip().splitlines()[-2:])[:300]


def listen(pipe: Connection, directory: Path) -> bytes:
    """Listen at all sockets until told to stop; give all that was sent to them."""
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    received = bytearray()
    with DefaultSelector() as selector:
        for leaf in LEAVES:
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(str(directory / leaf))
            (directory / leaf).chmod(0o777)
            sock.listen()
            selector.register(sock, EVENT_READ, partial(_accept, selector, received))
        pipe.send("listening")
        while not pipe.poll():
            for key, _ in selector.select(POLL_S):
                key.data(key.fileobj)
        for key in [*selector.get_map().values()]:
            key.fileobj.close()  # type: ignore[union-attr]  # sockets, all of them
    pipe.recv()
    return bytes(received)


def _accept(
    selector: DefaultSelector, received: bytearray, listener: socket.socket
) -> None:
    sock, _ = listener.accept()
    selector.register(sock, EVENT_READ, partial(_read, selector, received))


def _read(selector: DefaultSelector, received: bytearray, sock: socket.socket) -> None:
    try:
        data = sock.recv(READ_BYTES)
    except OSError:
        data = b""
    received += data
    if not data:
        selector.unregister(sock)
        sock.close()
