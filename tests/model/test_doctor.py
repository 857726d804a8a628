"""Machines that were broken on purpose: the doctor names it, and its hint mends it."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.configuration import to_toml
from tests.daemon.harness import (
    clean_environ,
    llamacpp,
    mock,
    preloaded,
)
from tests.daemon.preloaded import COMMAND
from tests.model.test_variants import add_broken

pytestmark = [pytest.mark.slow, pytest.mark.model]

PROGRAM = [*COMMAND]
WRAPPER = """
struct params { char bytes[900]; };
struct params llama_context_default_params(void) {
    struct params made;
    for (int i = 0; i < 900; i++) made.bytes[i] = 1;
    return made;
}
"""
"""A library in which a struct has fields that the binding does not know."""


class Machine:
    """A directory with a configuration, and the variables of a user's shell."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.config = scratch / "config.toml"
        self.program = PROGRAM
        self.environ = {
            **clean_environ(),
            "HOME": str(scratch),
            "XDG_RUNTIME_DIR": str(scratch / "run"),
            "INFERD_CONFIG": str(self.config),
            "INFERD_MODELS": str(scratch / "models"),
        }

    def write(self, *backends: dict[str, Any], **tables: Any) -> None:
        self.config.write_text(to_toml({"backend": list(backends), **tables}))

    def findings(self) -> dict[str, dict[str, Any]]:
        command = (*self.program, "doctor", "--json")
        if self.program is PROGRAM and preloaded().fits(self.environ):
            done = preloaded().run(command, self.environ)
        else:
            done = self.run(*command)
        found = json.loads(done.stdout)["findings"]
        return {each["check"]: each for each in found}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environ, capture_output=True, text=True, check=False
        )

    def follow(self, hint: str) -> None:
        """Type what a hint says, with this program for the installed command."""
        if hint.startswith("unset "):
            del self.environ[hint.removeprefix("unset ")]
            return
        program = " ".join(PROGRAM)
        typed = hint.replace("inferd model", f"{program} model")
        done = self.run("sh", "-c", typed)
        assert done.returncode in (0, 1), done.stderr  # 1: verify has found it

    def is_named(self, check: str, word: str) -> str:
        """Check that the doctor names a break; return its hint."""
        finding = self.findings()[check]
        assert finding["verdict"] in ("failed", "warning"), finding
        assert word in finding["detail"]
        return str(finding["hint"])

    def is_well(self) -> None:
        """Check that no check fails, and which of them warn."""
        found = self.findings().values()
        bad = {each["check"] for each in found if each["verdict"] != "ok"}
        # without a daemon there is none to be found
        assert bad <= {"sockets", "admin", "cpu", "service[inferd]"}, found


@pytest.fixture
def machine(short_dir):
    (short_dir / "run").mkdir(mode=0o700)
    return Machine(short_dir)


@pytest.fixture
def model(machine, tiny_q8_0):
    """A model's file, from which an import makes a copy."""
    path = Path(shutil.copy(tiny_q8_0, machine.scratch / "m.gguf"))
    path.chmod(0o664)
    return path


@pytest.fixture
def build(tmp_path):
    """A directory with the libraries that are installed, to be broken."""
    package = find_spec("llama_cpp")
    assert package is not None
    assert package.origin is not None
    for path in (Path(package.origin).parent / "lib").glob("*.so*"):
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def test_a_missing_model_is_imported(machine, model):
    machine.write(llamacpp("me/m:q8"))
    hint = machine.is_named("model[chat]", "me/m:q8")
    assert hint == "inferd model import FILE --name me/m:q8"
    machine.follow(hint.replace("FILE", str(model)))
    machine.is_well()


def test_a_model_with_a_wrong_hash_is_brought_again(machine, model):
    machine.write(llamacpp("me/m:q8"))
    machine.follow(f"inferd model import {model} --name me/m:q8")
    [blob] = (machine.scratch / "models" / "blobs").iterdir()
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)
    hint = machine.is_named("model[chat]", "has SHA-256")
    machine.follow(hint.replace("FILE", str(model)))
    machine.is_well()


def test_a_user_s_own_file_with_a_wrong_hash_stays(machine, model):
    machine.write(llamacpp(model, sha256="0" * 64))
    hint = machine.is_named("model[chat]", f"{model} has SHA-256")
    assert "rm " not in hint
    _, _, rest = hint.partition('sha256 = "')
    machine.write(llamacpp(model, sha256=rest.partition('"')[0]))
    machine.is_well()


def test_another_release_of_the_library_is_left_out(machine, model, build):
    compiler = shutil.which("cc")
    assert compiler
    (build / "libllama.so").unlink()
    subprocess.run(
        [
            *(
                compiler,
                "-shared",
                "-fPIC",
                "-xc",
                "-",
                "-o",
                str(build / "libllama.so"),
            ),
            *("-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", f"-L{build}"),
            *("-xnone", "-l:libllama.so.0"),
        ],
        input=WRAPPER,
        text=True,
        check=True,
    )
    machine.write(llamacpp(model))
    machine.environ["LLAMA_CPP_LIB_PATH"] = str(build)
    hint = machine.is_named("memory[chat]", "llama_context_params")
    assert hint == "unset LLAMA_CPP_LIB_PATH"
    machine.follow(hint)
    machine.is_well()


def test_a_build_that_crashes_is_left_out(machine, model, build):
    for path in build.glob("libggml-cpu-*.so"):
        path.unlink()
    add_broken(build, "SIGILL")
    machine.write(llamacpp(model))
    machine.environ["LLAMA_CPP_LIB_PATH"] = str(build)
    hint = machine.is_named("memory[chat]", "killed by SIGILL")
    machine.follow(hint)
    machine.is_well()


def test_a_budget_that_is_too_small_is_named_with_its_key(machine, model):
    machine.write(llamacpp(model), memory={"budget": 1000})
    hint = machine.is_named("memory[chat]", "the budget is")
    assert "[memory] budget" in hint
    machine.write(llamacpp(model))
    machine.is_well()


def test_a_lock_of_another_program_is_freed(machine):
    machine.write(mock())
    directory = machine.scratch / "run" / "inferd"
    directory.mkdir(mode=0o700)
    program = (
        "import fcntl, sys, time\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print(flush=True)\n"
        "time.sleep(999)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(directory / "inferd.lock")],
        stdout=subprocess.PIPE,
    ) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            hint = machine.is_named(
                "lock", f"held by process {holder.pid}, which is no"
            )
            machine.follow(hint)
            assert holder.wait(90) == -signal.SIGTERM
        finally:
            holder.kill()
    machine.is_well()


def test_sockets_that_were_left_behind_are_removed(machine):
    machine.write(mock())
    directory = machine.scratch / "run" / "inferd"
    directory.mkdir(mode=0o700)
    for leaf, mode in (("infer.sock", 0o660), ("admin.sock", 0o600)):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(directory / leaf))
        (directory / leaf).chmod(mode)
    hint = machine.is_named("sockets", "nobody listens at admin.sock, infer.sock")
    machine.follow(hint)
    assert not [*directory.glob("*.sock")]
    machine.is_well()


# --- what cannot be broken here, and is imitated --------------------------------------------

LATE = """
import os, time

_now = time.time
time.time = lambda: _now() - 400 * 86_400 * os.path.exists(os.environ["CLOCK_IS_LATE"])
"""
"""A Python whose clock is over a year late for as long as a file is there."""
TIMEDATECTL = """#!/bin/sh
[ "$*" = "set-ntp true" ] && rm "$CLOCK_IS_LATE"
"""
"""A service that sets the clock."""
SUDO = """#!/bin/sh
exec "$@"
"""
FILTERED = """
import ctypes, os, struct, sys

program = [
    (0x20, 0, 0, 0),  # the number of the call
    (0x35, 0, 2, 444),  # from landlock_create_ruleset on
    (0x25, 1, 0, 446),  # to landlock_restrict_self
    (0x06, 0, 0, 0x00050000 | 95),  # not supported
    (0x06, 0, 0, 0x7FFF0000),  # allowed
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
fprog = ctypes.create_string_buffer(struct.pack("HP", len(program), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, fprog, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
"""A kernel that was started without Landlock: its calls are not supported."""


def test_a_late_clock_is_set(machine):
    machine.write(mock())
    late, programs = machine.scratch / "late", machine.scratch / "programs"
    late.touch()
    programs.mkdir()
    (programs / "sitecustomize.py").write_text(LATE)
    for name, text in (("timedatectl", TIMEDATECTL), ("sudo", SUDO)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    machine.environ |= {
        "CLOCK_IS_LATE": str(late),
        "PATH": f"{programs}:{machine.environ['PATH']}",
        "PYTHONPATH": f"{programs}:{machine.environ['PYTHONPATH']}",
    }
    machine.follow(machine.is_named("clock", "inferd was installed on"))
    assert not late.exists()
    machine.is_well()


def test_a_kernel_without_landlock_is_named(machine):
    machine.write(mock())
    machine.program = [sys.executable, "-c", FILTERED, *PROGRAM]
    assert "Landlock" in machine.is_named("box", "landlock no")
    machine.program = PROGRAM  # as if the kernel had been started as the hint says
    machine.is_well()


def test_no_memory_has_to_be_locked(machine, model):
    machine.write(llamacpp(model))
    machine.program = ["sh", "-c", 'ulimit -l 0 && exec "$@"', "sh", *PROGRAM]
    machine.is_well()
