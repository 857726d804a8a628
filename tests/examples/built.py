"""Compile programs of C++ and C once, and keep them for all checkouts."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from inferd.trusted_path import open_directory
from tests.examples.clients import COMMAND_S, EXAMPLES
from tools.wheel import cache

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent / "cpp"
HEADERS: Final = EXAMPLES / "cpp"
WARNINGS: Final = ("-Wall", "-Wextra", "-Werror")
CXX: Final = ("-std=c++17", *WARNINGS, "-pthread", f"-I{HEADERS}")
C: Final = ("-std=c11", "-D_POSIX_C_SOURCE=200809L", *WARNINGS, f"-I{HEADERS}")
VARIANTS: Final = {
    "plain": ("-O0", "-Wpedantic", "-Wshadow", "-Wconversion"),
    "thread": ("-O0", "-g1", "-fsanitize=thread"),
    "address": (
        *("-O0", "-g1", "-fsanitize=address,undefined"),
        "-fno-sanitize-recover=all",
    ),
}
N_KEPT: Final = 24
"""Programs in the cache: two compilers' worth of all, before and after a change."""


def compilers() -> list[str]:
    """List the compilers of C++ that this machine has."""
    return [name for name in ("g++", "clang++") if shutil.which(name)]


def built(compiler: str, source: Path, variant: str) -> Path:
    """Give the program of a source, compiled unless it is in the cache.

    A source of C is compiled by the C compiler of the same family, and linked with the
    implementation of the C interface.
    """
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}: the client in C++ is not tested with it")
    commands = _commands(compiler, source, VARIANTS[variant])
    folder = cache() / "examples"
    os.close(open_directory(folder, makes=True))
    program = folder / f"{source.stem}-{variant}-{_key(compiler, source, commands)}"
    if not program.is_file():
        _compile(commands, program)
        _prune(folder)
    return program


def _commands(
    compiler: str, source: Path, flags: Sequence[str]
) -> list[tuple[str, ...]]:
    if source.suffix == ".cpp":
        return [(compiler, *CXX, *flags, str(source), "-o", "program")]
    c_compiler = {"g++": "gcc", "clang++": "clang"}[compiler]
    interface = HEADERS / "inferd" / "inferd_c.cpp"
    return [
        (c_compiler, *C, *flags, "-c", str(source), "-o", "main.o"),
        (compiler, *CXX, *flags, "main.o", str(interface), "-o", "program"),
    ]


def _key(compiler: str, source: Path, commands: list[tuple[str, ...]]) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True)
    words = repr(commands).replace(str(ROOT), "")
    digest = hashlib.sha256(version.stdout + words.encode())
    for path in [source, *sorted((HEADERS / "inferd").iterdir())]:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _compile(commands: list[tuple[str, ...]], program: Path) -> None:
    with TemporaryDirectory(dir=program.parent) as folder:
        for command in commands:
            ended = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=COMMAND_S,
                check=False,
            )
            assert ended.returncode == 0, ended.stderr
        (Path(folder) / "program").rename(program)


def _prune(folder: Path) -> None:
    programs = [path for path in folder.iterdir() if path.is_file()]
    programs.sort(key=lambda path: path.stat().st_mtime)
    for path in programs[:-N_KEPT]:
        path.unlink(missing_ok=True)
