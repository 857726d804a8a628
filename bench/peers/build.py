"""llama.cpp's own tools, from the sources and with the flags of our workers' library.

They are built once and kept with the libraries they load, so that what differs from our
workers is what lies around those libraries. Variants of the CPU code are in both or in
neither; of the same ones ggml itself takes the best, as our workers do.

    python -m bench.peers.build       # build them now; says where they are
"""

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.source import PACKAGE, sources, version
from inferd.paths import cache_directory
from tools.wheel import CHOICE_ARGS, CMAKE_ARGS, VARIANTS, progress

TOOLS: Final = ("llama-server", "llama-bench", "llama-batched-bench")
FLAGS: Final = (
    *CMAKE_ARGS,
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",  # as the binding's are
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    "-DCMAKE_INSTALL_RPATH=$ORIGIN",  # the libraries move along
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",  # or the build would fetch it
)
JOBS: Final = 2
NICENESS: Final = 15


def main() -> int:
    """Build them."""
    print(tools_directory())
    return 0


def tool(name: str) -> Path:
    """Find a tool in the cache, or build all of them."""
    return tools_directory() / name


def tools_directory() -> Path:
    """Find the directory of the tools and their libraries; fill it if it is not there."""
    chosen = (VARIANTS.read_text() for _ in CHOICE_ARGS)
    words = (
        *(version(), *FLAGS, *TOOLS, *chosen),
        *(platform.machine(), *platform.libc_ver()),
    )
    return kept(
        Peer("llama.cpp", PACKAGE, "vendor/llama.cpp", (*FLAGS, *CHOICE_ARGS), TOOLS),
        words,
    )


class Peer(NamedTuple):
    """Programs of another project, whose sources our binding to it carries."""

    name: str
    package: str
    """The binding."""
    source: str
    """Where in it they are."""
    flags: Sequence[str]
    programs: Sequence[str]


def kept(peer: Peer, words: Sequence[str]) -> Path:
    """Find the directory of a peer's programs in the cache, or build them.

    Args:
        peer: what they are.
        words: all that a build depends on.
    """
    key = hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
    directory = cache_directory() / "peers" / f"{peer.name}-{key}"
    if not (directory / "bin").is_dir():
        if not shutil.which("cmake"):
            sys.exit("the peers need CMake and a C++ compiler to be built")
        build(peer, directory)
    return directory / "bin"


def build(peer: Peer, directory: Path) -> None:
    """Compile a peer's programs; keep them and their libraries."""
    release = f"{peer.package} {version(peer.package)}"
    say(f"building {', '.join(peer.programs)} of {release} once; takes minutes")
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "build.log"
    log.write_text("")
    with (
        tempfile.TemporaryDirectory(prefix="inferd-peer-") as made,
        sources(peer.package) as binding,
    ):
        compile_programs(peer, binding / peer.source, made, log)
        keep(Path(made) / "bin", directory)
    say(f"kept in {directory}")


def compile_programs(peer: Peer, source: Path, made: str, log: Path) -> None:
    """Compile them into a directory."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run(["cmake", "-S", str(source), "-B", made, *generator, *peer.flags], log)
    run(
        [
            *("nice", "-n", str(NICENESS), "cmake", "--build", made),
            *("--parallel", str(JOBS), "--target", *peer.programs),
        ],
        log,
    )


def keep(made: Path, directory: Path) -> None:
    """Copy what was built; it has its name when all of it is there."""
    whole = directory / "bin.new"
    shutil.rmtree(whole, ignore_errors=True)
    shutil.copytree(made, whole, symlinks=True)
    whole.rename(directory / "bin")


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
        sys.exit(f"the peer's tools did not build; the whole log is {log}")


def say(text: str) -> None:
    """Tell the person who waits."""
    print(f"[peers] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
