"""Out of a worker's box: what code that a model has taken over may still do."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from attack.probe import Probe
from attack.programs import as_user, run
from attack.scene import Scene, SkippedError, person
from attack.target import is_root, python_of
from attack.users import SERVICE
from tests.daemon.harness import clean_environ

KIND: Final = "sandbox"
SCRIPT: Final = Path(__file__).parents[1] / "escapes.py"
NO_BOX: Final = 77
OLD_ENTRY: Final = f"""
import sys
from inferd.config import LlamaCppSettings
from inferd.worker import box
source = open(sys.argv[1]).read()
box.give_up_privileges()
if not box.enter(LlamaCppSettings(name="chat")).seccomp:
    sys.exit({NO_BOX})
del sys.argv[0]
exec(compile(source, sys.argv[0], "exec"), {{"__name__": "__main__"}})
"""
"""Enters the box of a checkout that has no program for that."""
KEY: Final = "0x1dfe"
LEFT: Final = (Path("/dev/shm/inferd-attack"), Path("/tmp/inferd-attack"))  # noqa: S108
WAIT_S: Final = 0.2


def attacks() -> Iterator[Probe]:
    """Give all of them."""
    for who, uid in (("user", SERVICE), ("root", 0)):
        yield Probe(
            name=f"box-{who}",
            kind=KIND,
            about=f"ways out of the box of a worker that is {who}'s",
            try_in=partial(_escape, uid=uid),
        )


def _escape(scene: Scene, uid: int) -> None:
    if not is_root():
        raise SkippedError("needs root, to be another user")
    with scene.scratch() as scratch, person(SERVICE) as owner:
        private = _private(scratch, uid)
        before = _looks(private)
        with _listening(scratch / "out.sock") as listener:
            owner_pid = owner.call(_pid)
            lines = _tries(scene, scratch, uid, owner_pid)
            _judge(scene, lines)
            scene.require("nothing was sent out", not _heard(listener), "a datagram")
        changed = {k: (v, _looks(private).get(k)) for k, v in before.items()}
        changed = {k: v for k, v in changed.items() if v[0] != v[1]}
        scene.require("files are as before", not changed, f"{changed}")
        more = {*_looks(private)} - {*before}
        scene.require("no files are there that were not", not more, f"{more}")
    _clear()


def _pid(pipe: object) -> int:
    return os.getpid()


def _private(scratch: Path, uid: int) -> Path:
    private = scratch / "private"
    private.mkdir(mode=0o700)
    (private / "empty").mkdir()
    for name in ("file", "program", "moved"):
        (private / name).write_text("#!/bin/sh\nexit 7\n")
        (private / name).chmod(0o700)
    for path in (private, *private.iterdir()):
        os.chown(path, uid, uid)
    with suppress(OSError):  # no such attributes in this file system
        os.setxattr(private / "file", "user.there", b"1")
    shutil.copy(SCRIPT, scratch)
    return private


def _looks(private: Path) -> dict[str, tuple[int, ...]]:
    """Give what everybody may be allowed with each file, and when it was changed."""
    found: dict[str, tuple[int, ...]] = {}
    for path in (private, *private.iterdir()):
        stat = path.stat()
        found[path.name] = (stat.st_mode, stat.st_uid, int(stat.st_mtime), stat.st_size)
    return found


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        path.chmod(0o777)
        listener.settimeout(WAIT_S)
        yield listener


def _heard(listener: socket.socket) -> bool:
    try:
        return bool(listener.recv(100))
    except TimeoutError:
        return False


def _tries(scene: Scene, scratch: Path, uid: int, owner: int) -> list[str]:
    arguments = [str(scratch / name) for name in (SCRIPT.name, "private", "out.sock")]
    has_program = (scene.checkout / "inferd/worker/sandbox.py").exists() or (
        scene.checkout / "inferd/worker/sandbox"
    ).is_dir()
    enter = ["-m", "inferd.worker.sandbox"] if has_program else ["-c", OLD_ENTRY]
    if not has_program:
        scene.notes.append(
            "this checkout has no inferd.worker.sandbox: entered by hand"
        )
    command = [python_of(scene.checkout), *enter, *arguments, str(owner)]
    found = run(
        [*(as_user(uid) if uid else []), *command],
        cwd=scene.checkout,
        environ=clean_environ() | {"HOME": str(scratch)},
    )
    if found.returncode == NO_BOX:
        raise SkippedError("this kernel has no seccomp, so there is no box")
    lines = [line for line in found.stdout.splitlines() if line.startswith("{")]
    if found.returncode != 0:
        tail = found.stderr.strip()[-300:]
        scene.notes.append(f"it ended with {found.returncode}: {tail}")
    return lines


def _judge(scene: Scene, lines: list[str]) -> None:
    found = [json.loads(line) for line in lines]
    scene.require("the box was entered", found, "the script wrote nothing")
    for each in found:
        scene.require(each["name"], each["is_held"], each["detail"])
    names = [each["name"] for each in found]
    is_whole = bool(names) and names[-1] == LAST
    scene.require(
        "the script came to its end",
        is_whole,
        f"it ended after {names[-1] if names else 'nothing'}",
    )


LAST: Final = "execve of this Python"


def _clear() -> None:
    """Take away what was made outside, if anything was."""
    time.sleep(WAIT_S)
    for path in LEFT:
        path.unlink(missing_ok=True)
    for option in ("-M", "-Q", "-S"):
        subprocess.run(["ipcrm", option, KEY], capture_output=True, check=False)
