"""Another user swaps directories and links while root installs, upgrades and removes."""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inferd.cli.console import CommandError
from inferd.cli.models.opening import opened_store
from inferd.models.bring import bring_file
from inferd.models.found.model import FoundFile
from inferd.models.store.directory import StoreError
from inferd.models.store.store import ModelStore
from inferd.trusted_path import UntrustedError, open_directory
from tests.unit.models.store.stores import open_store
from tools import install, setup, wheel
from tools.releases import Releases
from tools.trusted import TreeCopy, copy_file, remove_tree

ATTACKER = 20_037
N_ROUNDS = 150
MAX_ROUNDS = 20_000
"""Where the attacker's process does not get to run."""
DEEPER_THAN_PYTHON = 1_200
SECRET = "what root alone may read"
MODEL = b"GGUF" + b"weights" * 100
SHA256 = hashlib.sha256(MODEL).hexdigest()
SWAPPER = """
import os, sys
directory, victim, name = sys.argv[1:]
os.chdir(directory)
print("ready", flush=True)
while True:
    try:
        os.rename(name, "kept")
        os.symlink(victim, name)
        os.unlink(name)
        os.rename("kept", name)
    except OSError:
        os.makedirs(name + "/deep", exist_ok=True)
"""
"""Puts a link where a file or directory was, and back, without end."""

pytestmark = pytest.mark.root  # who is attacked


@pytest.fixture
def place(short_dir: Path) -> Path:
    """A directory that others can reach."""
    short_dir.chmod(0o755)
    return short_dir


@pytest.fixture
def victim(place: Path) -> Path:
    """What is root's, and must neither change nor be read by others."""
    directory = place / "victim"
    directory.mkdir(mode=0o700)
    (directory / "secret").write_text(SECRET)
    (directory / "deep").mkdir()
    return directory


@pytest.fixture
def theirs(place: Path) -> Path:
    """A directory of the attacker's."""
    directory = place / "theirs"
    directory.mkdir()
    os.chown(directory, ATTACKER, ATTACKER)
    return directory


@contextmanager
def swapping(directory: Path, victim: Path, name: str) -> Iterator[None]:
    """Have the attacker swap a name in a directory of its own while inside."""
    parents = Path(sys.executable).parents
    if not all(each.stat().st_mode & stat.S_IXOTH for each in parents):
        pytest.skip(f"other users cannot run {sys.executable}")
    command = [sys.executable, "-I", "-c", SWAPPER, str(directory), str(victim), name]
    with subprocess.Popen(
        command,
        user=ATTACKER,
        group=ATTACKER,
        extra_groups=[],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def is_whole(victim: Path) -> bool:
    names = {path.name for path in victim.iterdir()}
    return names == {"secret", "deep"} and (victim / "secret").read_text() == SECRET


def give(directory: Path) -> None:
    for path in (directory, *directory.rglob("*")):
        os.lchown(path, ATTACKER, ATTACKER)


# --- directories of the attacker's ----------------------------------------------------


@pytest.mark.parametrize(
    "mode", [0o775, 0o777, 0o757], ids=lambda mode: f"mode {mode:o}"
)
def test_root_installs_nothing_where_others_may_write(place, mode):
    prefix = place / "opt" / "inferd"
    prefix.mkdir(parents=True)
    (place / "opt").chmod(mode)
    with pytest.raises(UntrustedError, match="can be written to by others"):
        Releases(prefix)


@pytest.mark.parametrize("level", ["opt", "opt/inferd", "opt/inferd/models"])
def test_root_installs_nothing_below_what_another_user_owns(place, level):
    (place / "opt/inferd/models").mkdir(parents=True)
    os.chown(place / level, ATTACKER, ATTACKER)
    with pytest.raises(UntrustedError, match=f"another user, uid {ATTACKER}"):
        Releases(place / "opt" / "inferd")


def test_root_follows_no_link_of_another_user_s(place, theirs, victim):
    (theirs / "link").symlink_to(victim)
    os.lchown(theirs / "link", ATTACKER, ATTACKER)
    shutil.move(theirs / "link", place / "link")
    with pytest.raises(UntrustedError, match="link belongs to another user"):
        open_directory(place / "link" / "new", makes=True)
    assert is_whole(victim)


def test_root_follows_no_link_where_others_may_have_put_it(place, victim):
    """It is root's, but others may have given it this name."""
    shared = place / "shared"
    shared.mkdir()
    (shared / "link").symlink_to(victim)
    shared.chmod(0o777)
    with pytest.raises(UntrustedError, match="shared can be written to by others"):
        open_directory(shared / "link")


@pytest.mark.parametrize("folder", setup.FETCHED)
def test_nothing_is_fetched_into_a_folder_of_another_user_s(
    place, monkeypatch, capsys, folder
):
    (place / folder).mkdir()
    os.chown(place / folder, ATTACKER, ATTACKER)
    monkeypatch.setenv("INFERD_CACHE_DIR", str(place))
    monkeypatch.setattr(setup, "PYTHON", Path("/bin/false"))
    assert setup.fetch() == 2
    assert f"{folder} belongs to another user" in capsys.readouterr().err


def test_no_model_comes_into_a_store_of_another_user_s(place, theirs, monkeypatch):
    """Of which the installer runs the same command as everybody."""
    monkeypatch.setenv("INFERD_MODELS", str(theirs / "models"))
    with pytest.raises(CommandError, match=f"belongs to another user, uid {ATTACKER}"):
        with opened_store(makes=True):
            pytest.fail("it is opened")
    assert list(theirs.iterdir()) == []


def test_a_link_of_root_s_own_is_followed(place, victim):
    (place / "link").symlink_to("victim/../victim")
    os.close(open_directory(place / "link" / "new", makes=True))
    assert (victim / "new").is_dir()


def test_links_that_lead_to_each_other_come_to_an_end(place):
    (place / "one").symlink_to("two")
    (place / "two").symlink_to("one")
    with pytest.raises(UntrustedError, match="over 40 symbolic links"):
        open_directory(place / "one")


def test_a_sticky_directory_may_be_above_and_not_be_used_itself(place):
    shared = place / "shared"
    (shared / "ours").mkdir(parents=True)
    shared.chmod(0o1777)
    os.close(open_directory(shared / "ours"))
    with pytest.raises(UntrustedError, match="can be written to by others"):
        open_directory(shared)


def test_a_wheel_in_another_user_s_cache_is_not_used(theirs, monkeypatch, capsys):
    monkeypatch.setenv("INFERD_CACHE_DIR", str(theirs))
    monkeypatch.setattr(wheel, "build", lambda *_: pytest.fail("builds there"))
    with pytest.raises(SystemExit, match="2"):
        wheel.llama_wheel(Path(sys.executable))
    assert f"belongs to another user, uid {ATTACKER}" in capsys.readouterr().err
    assert list(theirs.iterdir()) == []


def test_sudo_leaves_nothing_that_leads_to_the_caller_s_files(theirs, monkeypatch):
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "PYTHONPATH", "PIPX_HOME"):
        monkeypatch.setenv(name, str(theirs))
    monkeypatch.setenv("PATH", f"{theirs}:/usr/bin")
    monkeypatch.chdir(theirs)
    before, umask = dict(os.environ), os.umask(0o077)
    try:
        install.own_environment()
        assert str(theirs) not in " ".join(os.environ.values())
        assert os.environ["PATH"] == "/usr/bin"
        assert Path.cwd() == Path("/")
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(umask)
        os.environ.clear()
        os.environ.update(before)


# --- races ----------------------------------------------------------------------------


@pytest.mark.slow
def test_removing_what_is_swapped_meanwhile_removes_nothing_else(place, victim):
    """As `make uninstall`, and as `make install` with what older versions left."""
    parent = open_directory(place)
    for number in range(N_ROUNDS // 5):
        cache = place / f"cache-{number}"
        for name in ("deep", *map(str, range(50))):
            (cache / "models" / name).mkdir(parents=True)
        give(cache)
        with swapping(cache, victim, "models"):
            remove_tree(cache.name, parent)
        assert is_whole(victim)
    os.close(parent)


@pytest.mark.slow
def test_what_another_user_has_is_removed_however_deep_it_is(place, theirs):
    at = os.open(theirs, os.O_RDONLY)
    for _ in range(DEEPER_THAN_PYTHON):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.fchown(below, ATTACKER, ATTACKER)
        os.close(at)
        at = below
    os.close(at)
    parent = open_directory(place)
    try:
        assert remove_tree(theirs.name, parent)
        assert not theirs.exists()
    finally:
        os.close(parent)
        # or pytest itself would go too deep when it cleans up
        subprocess.run(["find", place, "-mindepth", "1", "-delete"], check=True)


def test_a_link_in_place_of_a_directory_is_removed_and_not_followed(place, victim):
    (place / "cache").symlink_to(victim)
    parent = open_directory(place)
    assert remove_tree("cache", parent)
    assert remove_tree("cache", parent)
    os.close(parent)
    assert is_whole(victim)


def test_removing_takes_no_more_rights_than_the_owner_s(place, theirs, victim):
    kept = theirs / "root's"
    kept.mkdir(mode=0o700)
    (kept / "file").write_text(SECRET)
    parent = open_directory(place)
    assert not remove_tree(theirs.name, parent)
    os.close(parent)
    assert (kept / "file").read_text() == SECRET


IN_A_TERMINAL = """
import os, sys
from inferd import trusted_path
from tools import trusted

run = trusted.subprocess.run

def run_other(command, **options):
    code = "import os; os.open('/dev/tty', os.O_RDWR)"
    ended = run([sys.executable, "-I", "-c", code], **options)
    print(ended.returncode, ended.stdout, ended.stderr, flush=True)

os.setsid()
os.dup2(os.open(sys.argv[1], os.O_RDWR), 0)
trusted.subprocess.run = run_other
trusted.remove_tree("theirs", trusted_path.open_directory(sys.argv[2]))
"""


def test_what_runs_as_another_user_has_neither_root_s_terminal_nor_its_memory(
    place, theirs
):
    """It could type there (``TIOCSTI``), and tell without end why it removes nothing."""
    ours, its = os.openpty()
    command = [sys.executable, "-c", IN_A_TERMINAL, os.ttyname(its), str(place)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    os.close(ours)
    os.close(its)
    assert ended.stdout == "1 None None\n", ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["module.py", "package"])
def test_sources_that_are_swapped_for_links_give_no_secret_away(
    place, theirs, victim, name
):
    """As `make install` in the checkout of the user who has called `sudo`."""
    source = theirs / "inferd"
    source.mkdir()
    if name == "package":
        (source / name).mkdir()
    else:
        (source / name).write_text("pass\n")
    give(theirs)
    target = victim / "secret" if name == "module.py" else victim
    outcomes = set()
    with swapping(source, target, name):
        for number in range(MAX_ROUNDS):
            copied = place / "copy"
            copied.mkdir()
            outcomes.add(copy_tree(theirs, copied))
            files = [path for path in copied.rglob("*") if path.is_file()]
            assert all(SECRET not in path.read_text() for path in files)
            shutil.rmtree(copied)
            os.sched_yield()
            if number > N_ROUNDS and "refused" in outcomes:
                break
    assert "refused" in outcomes


def copy_tree(source: Path, target: Path) -> str:
    """Copy as the installer does; tell how it came out."""
    descriptors = [os.open(each, os.O_RDONLY) for each in (source, target)]
    try:
        TreeCopy().copy("inferd", *descriptors)
    except (UntrustedError, OSError):
        return "refused"
    else:
        return "copied"
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


# --- files that are not what they should be -------------------------------------------


@pytest.fixture
def store(place: Path) -> Iterator[ModelStore]:
    """The machine's store, in a directory of the test's."""
    store = open_store(place / "models")
    with store.directory:
        yield store


def taken(store: ModelStore, path: Path) -> bool:
    """Tell whether a file that is to have the digest of ours comes into the store."""
    found = FoundFile(path, "tiny.gguf", sha256=SHA256)
    try:
        bring_file(store.directory, found, lambda *_: None)
    except (StoreError, OSError):
        return False
    return (place := store.directory.path_of("blobs", SHA256)).stat().st_uid == 0 and (
        place.read_bytes() == MODEL
    )


def test_a_model_of_another_user_s_is_copied_by_its_digest_and_is_root_s(
    place, theirs, store
):
    path = theirs / "tiny.gguf"
    path.write_bytes(MODEL)
    os.chown(path, ATTACKER, ATTACKER)
    assert taken(store, path)
    path.write_bytes(b"GGUF another")
    assert store.directory.path_of("blobs", SHA256).read_bytes() == MODEL


def test_a_model_that_was_changed_is_not_taken(place, theirs, store):
    path = theirs / "tiny.gguf"
    path.write_bytes(MODEL[:-1] + b"!")
    assert not taken(store, path)
    os.chown(path, ATTACKER, ATTACKER)
    assert not taken(store, path)
    assert store.directory.names("blobs") == []


def test_a_pipe_is_no_model(theirs, store):
    os.mkfifo(theirs / "tiny.gguf")
    assert not taken(store, theirs / "tiny.gguf")
    assert store.directory.names("blobs") == []


def test_a_model_that_changes_while_it_is_copied_is_refused(theirs, store, monkeypatch):
    path = theirs / "tiny.gguf"
    path.write_bytes(MODEL)
    os.chown(path, ATTACKER, ATTACKER)
    first = os.read

    def read_and_change(descriptor: int, n: int) -> bytes:
        path.write_bytes(b"!" * len(MODEL))
        return first(descriptor, n)

    monkeypatch.setattr("inferd.models.bring.os.read", read_and_change)
    assert not taken(store, path)


def test_a_file_without_end_is_not_copied(place):
    parent = open_directory(place)
    with Path("/dev/zero").open("rb") as endless:
        with pytest.raises(UntrustedError, match="over 1000 bytes"):
            copy_file(endless.fileno(), parent, "file", max_bytes=1000)
    os.close(parent)
    assert list(place.iterdir()) == []
