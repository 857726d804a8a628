"""Texts of others that reach a terminal: they draw nothing there, and forge no line."""

import json
import os
import pty
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from attack.kinds.models import tiny_model
from attack.probe import Probe
from attack.scene import Scene, person
from attack.target import python_of
from inferd import surfaces
from tests.daemon.configuration import clean_environ, llamacpp, mock, to_toml

KIND: Final = "terminal"
FORGED: Final = "FORGED"
HOSTILE: Final = (
    f"a\x1b[2J\x1b]0;t\x07\x9b31m\x7f\u202e\u2066\b\r\n{FORGED} line\u2028\x85b"
)
NAME: Final = b"tiny-random"
HOSTILE_NAME: Final = b"\x1b[2J\n" + FORGED.encode()
IN_TOML: Final = HOSTILE.replace("\x7f", "")
"""What a string in TOML may have of it, where it is escaped as in JSON."""
SEPARATORS: Final = "\u2028\u2029"
"""Which terminals show as any letter: a text may have them, a message need not."""
ALLOWED: Final = "\n\r\t"
PATIENCE_S: Final = 60.0
READ_BYTES: Final = 1 << 16
assert len(NAME) == len(HOSTILE_NAME)  # noqa: S101  # it takes the other's place


def attacks() -> Iterator[Probe]:
    """Give all of them."""
    made = {
        "answers": ("control characters in a model's text", _answers),
        "names": ("control characters in a model's name and template", _names),
        "paths": ("control characters in paths that doctor and others tell", _paths),
        "replies": ("control characters in what a daemon of another's says", _replies),
    }
    for name, (about, try_in) in made.items():
        yield Probe(name=f"terminal-{name}", kind=KIND, about=about, try_in=try_in)


def _answers(scene: Scene) -> None:
    with scene.daemon({"backend": [mock(tokens=[IN_TOML, "b"])]}) as daemon:
        for options in ([], ["--progress"]):
            arguments = [
                "generate",
                "x",
                *options,
                "--directory",
                str(daemon.directory),
            ]
            _judge(scene, arguments, is_text=True)


def _names(scene: Scene) -> None:
    with scene.scratch() as scratch:
        template = "{{ raise_exception(" + json.dumps(HOSTILE) + ") }}"
        model = tiny_model(scratch / "model.gguf", template=template)
        model.write_bytes(model.read_bytes().replace(NAME, HOSTILE_NAME))
        with scene.daemon(
            {"backend": [llamacpp(model, chat_template="generic")]}
        ) as daemon:
            place = ["--directory", str(daemon.directory)]
            _judge(scene, ["status", *place])
            _judge(scene, ["generate", "x", "--max-tokens", "1", *place], is_text=True)


def _paths(scene: Scene) -> None:
    with scene.scratch() as scratch:
        odd = scratch / IN_TOML
        config = scratch / "config.toml"
        config.write_text(
            to_toml({"listen": {"directory": str(odd)}, "backend": [llamacpp(odd)]})
        )
        wrong = scratch / "wrong.toml"
        wrong.write_text(f"{json.dumps(IN_TOML)} = 1\n")
        _judge(scene, ["doctor", "--config", str(config)])
        _judge(scene, ["doctor", "--config", str(wrong)])
        _judge(scene, ["serve", "--config", str(wrong)])
        _judge(scene, ["serve", "--config", str(odd)])
        _judge(scene, ["status", "--directory", str(odd)])
        _judge(
            scene, ["generate", "x", "--image", str(odd), "--directory", str(scratch)]
        )
        _judge(scene, ["transcribe", str(odd), "--directory", str(scratch)])
        _judge(scene, [HOSTILE])


def _replies(scene: Scene) -> None:
    with scene.scratch() as scratch, person(0) as other:
        other.begin(_serve, scratch)
        other.result()
        place = ["--directory", str(scratch)]
        for arguments in (
            *(["status"], ["generate", "x"], ["generate", "x", "--progress"]),
            *(["embed", "x"], ["rerank", "x", "y"], ["reload"], ["drain"]),
            ["cancel", "x"],
        ):
            _judge(scene, [*arguments, *place], is_text=arguments[0] == "generate")
        other.tell("stop")
        other.result()


def _judge(scene: Scene, arguments: Sequence[str], *, is_text: bool = False) -> None:
    shown = show(scene.checkout, arguments)
    name = " ".join(each for each in arguments if each.isprintable())[:60]
    seen = {each for each in shown if is_control(each)} - (
        {*SEPARATORS} if is_text else {*()}
    )
    controls = sorted(f"U+{ord(each):04X}" for each in seen)
    scene.require(f"{name}: no control characters", not controls, ", ".join(controls))
    if not is_text:
        forged = [
            line for line in re.split(r"[\r\n]+", shown) if line.startswith(FORGED)
        ]
        scene.require(f"{name}: no forged line", not forged, f"{forged[:2]}")
    scene.require(f"{name}: something is told", shown.strip(), "nothing was written")


def is_control(character: str) -> bool:
    """Tell whether a terminal may act on a character, or be misled by it."""
    return not character.isprintable() and character not in ALLOWED


def show(checkout: Path, arguments: Sequence[str]) -> str:
    """Run a command on a terminal; give all that it shows there."""
    ours, theirs = pty.openpty()
    chunks: list[bytes] = []
    process = subprocess.Popen(
        [python_of(checkout), "-m", "inferd", *arguments],
        cwd=checkout,
        env=clean_environ() | {"TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    timer = threading.Timer(PATIENCE_S, process.kill)
    timer.start()
    try:
        while data := _read(ours):
            chunks.append(data)
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        os.close(ours)
    return b"".join(chunks).decode(errors="replace")


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, READ_BYTES)
    except OSError:  # the other end is closed
        return b""


def _serve(pipe: Connection, directory: Path) -> None:
    """Say hostile things on every socket until told to stop."""
    listeners = []
    for leaf in (
        surfaces.INFER.socket,
        surfaces.V2.socket,
        surfaces.EMBED.socket,
        surfaces.RERANK.socket,
        surfaces.ADMIN.socket,
    ):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(directory / leaf))
        listener.listen()
        listeners.append(listener)
        say = _admin if leaf == surfaces.ADMIN.socket else _refuse
        threading.Thread(target=_accept, args=(listener, say), daemon=True).start()
    pipe.send("listening")
    pipe.recv()


def _accept(listener: socket.socket, say: Any) -> None:
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=partial(_talk, sock, say), daemon=True).start()


def _talk(sock: socket.socket, say: Any) -> None:
    with sock:
        try:
            say(sock)
        except OSError:
            return


def _line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _refuse(sock: socket.socket) -> None:
    line = sock.makefile("rb").readline()
    request_id = json.loads(line)["id"]
    progress = {"type": "status", "id": request_id, "status": "queued", "position": 1}
    sock.sendall(_line(**progress))
    error = {"type": "error", "id": request_id, "code": HOSTILE, "message": HOSTILE}
    sock.sendall(_line(**error))
    time.sleep(1)


def _admin(sock: socket.socket) -> None:
    head = {"type": "status", "id": "admin"}
    abilities = dict.fromkeys(
        ("v2", "vision", "audio", "tools", "thinking", "embed", "generate", "rerank"),
        True,
    )
    sock.sendall(
        _line(
            **head,
            status="capabilities",
            backend=HOSTILE,
            **abilities,
            structure=True,
            accelerator=HOSTILE,
            gpu_layers=0,
            wire_version=1,
            daemon_version=HOSTILE,
            model=HOSTILE,
            dialect=HOSTILE,
            cpu_variant=HOSTILE,
        )
    )
    sock.sendall(
        _line(
            **head,
            status="restarting",
            backend=HOSTILE,
            phase="backoff",
            reason=HOSTILE,
            retry_in_s=1.0,
        )
    )
    for line in sock.makefile("rb"):
        command = json.loads(line)["command"]
        reply = {"type": "reply", "id": "admin", "command": command}
        sock.sendall(_line(**reply, ok=False, message=HOSTILE))
