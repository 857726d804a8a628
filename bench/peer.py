"""llama.cpp's own HTTP server, of the same release: a peer to be measured against.

It is built once, from the very sources and with the very flags of the library that our
workers load, so that what differs is what lies around that library.

    python -m bench.peer              # build it now; says where it is
"""

import hashlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.daemon import ended_at_exit
from inferd.client.discovery import pauses
from inferd.paths import cache_directory
from tools.setup import CMAKE_ARGS, pinned, progress

PACKAGE: Final = "llama-cpp-python"
FLAGS: Final = (
    *CMAKE_ARGS,
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",  # one file to keep
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",  # or the build would fetch it
)
START_S: Final = 120.0
"""Seconds the server gets to load a model."""
HEALTH_S: Final = 2.0
"""Seconds one look at it may take."""


def main() -> int:
    """Build it."""
    print(server_binary())
    return 0


def server_binary() -> Path:
    """Find the server in the cache, or build it."""
    version = pinned(PACKAGE)
    words = (version, *FLAGS, platform.machine(), *platform.libc_ver())
    key = hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
    binary = cache_directory() / "peers" / f"llama.cpp-{key}" / "llama-server"
    if not binary.is_file():
        if not shutil.which("cmake"):
            sys.exit("the peer needs CMake and a C++ compiler to be built")
        say(f"building llama-server of {PACKAGE} {version} once; it takes minutes")
        build(version, binary)
    return binary


def build(version: str, binary: Path) -> None:
    """Compile the server and keep its one file."""
    binary.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="inferd-peer-") as scratch:
        source = fetched_source(version, Path(scratch))
        made = Path(scratch) / "build"
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        log = binary.parent / "build.log"
        log.write_text("")
        run(["cmake", "-S", str(source), "-B", str(made), *generator, *FLAGS], log)
        jobs = str(len(os.sched_getaffinity(0)))
        run(
            [
                *("nice", "-n", "10", "cmake", "--build", str(made)),
                *("--target", "llama-server", "--parallel", jobs),
            ],
            log,
        )
        whole = binary.with_suffix(".new")
        shutil.copy(made / "bin" / "llama-server", whole)
        whole.rename(binary)
    say(f"kept as {binary}")


def fetched_source(version: str, scratch: Path) -> Path:
    """Take llama.cpp's sources out of the binding's."""
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download"),
        *("--quiet", "--no-deps", "--no-binary", PACKAGE),
        *("--dest", str(scratch), f"{PACKAGE}=={version}"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(result.stdout + result.stderr)
    [archive] = scratch.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(scratch, filter="data")
    [source] = scratch.glob("*/vendor/llama.cpp")
    return source


def run(command: Sequence[str], log: Path) -> None:
    """Run a step of the build, saying now and then how far it is."""
    with (
        log.open("a") as file,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        file.writelines(progress(process.stdout or []))
    if process.returncode:
        say("".join(log.read_text().splitlines(keepends=True)[-40:]))
        sys.exit(f"llama-server did not build; the whole log is {log}")


def say(text: str) -> None:
    """Tell the person who waits."""
    print(f"[peer] {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that serves."""

    pid: int
    url: str
    """What its paths are added to."""


@contextmanager
def running_server(
    model: Path, *, threads: int, extra_args: Sequence[str] = ()
) -> Iterator[RunningServer]:
    """Run the server on a model while inside."""
    binary = server_binary()
    port = free_port()
    command = [
        *(str(binary), "--model", str(model), "--host", "127.0.0.1"),
        *("--port", str(port), "--threads", str(threads)),
        *("--threads-batch", str(threads), *extra_args),
    ]
    with tempfile.TemporaryFile("w+") as words:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT
        )
        with ended_at_exit(process):
            url = f"http://127.0.0.1:{port}"
            if not comes_up(url, process):
                words.seek(0)
                sys.exit("llama-server does not come up:\n" + words.read()[-2000:])
            yield RunningServer(process.pid, url)


def free_port() -> int:
    """Find a port of the loopback interface that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def comes_up(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server is healthy; false if it ends or takes too long."""
    deadline = time.monotonic() + START_S
    for pause in pauses():
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=HEALTH_S):  # noqa: S310  # ours
                return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if process.poll() is not None or time.monotonic() > deadline:
                return False
        time.sleep(pause)
    return False


if __name__ == "__main__":
    sys.exit(main())
