import grp
import os
import socket
import stat
from pathlib import Path

import pytest
import trio

from inferd.service.bind import ListenError, bind, make_socket_directory
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import make_daemon

GROUP = grp.getgrgid(os.getgid()).gr_name


@pytest.fixture
def run_dir(short_dir):
    path = short_dir / "run"
    path.mkdir(mode=0o700)
    return path


async def refusal(directory: Path) -> str:
    """Start a daemon that must not start; give its reason."""
    reasons: list[str] = []
    try:
        with trio.fail_after(90):
            await make_daemon(directory, ScriptedBackend()).daemon.run()
    except* ListenError as group:
        reasons += [str(error) for error in leaves(group)]
    [reason] = reasons
    return reason


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error]


@pytest.mark.parametrize("leaf", ["inferd.lock", "admin.sock", "infer.sock"])
@pytest.mark.parametrize("exists", [True, False])
async def test_a_symlink_is_followed_by_nothing(
    leaf, exists, short_dir, run_dir, autojump_clock
):
    victim = short_dir / "victim"
    if exists:
        victim.write_text("precious")
    (run_dir / leaf).symlink_to(victim)
    assert "symlink" in await refusal(run_dir)
    assert victim.exists() is exists
    assert not exists or victim.read_text() == "precious"
    assert (run_dir / leaf).is_symlink()


async def test_a_symlink_that_came_after_the_check_is_not_followed_either(
    short_dir, run_dir, monkeypatch, autojump_clock
):
    monkeypatch.setattr("inferd.service.bind._check_lock_path", lambda _: None)
    (run_dir / "inferd.lock").symlink_to(short_dir / "victim")
    assert "symbolic links" in await refusal(run_dir)
    assert not (short_dir / "victim").exists()


async def test_a_file_that_is_no_socket_is_left_alone(run_dir, autojump_clock):
    (run_dir / "infer.sock").write_text("precious")
    assert "something else" in await refusal(run_dir)
    assert (run_dir / "infer.sock").read_text() == "precious"


async def test_a_pipe_in_place_of_the_lock_hangs_nobody(run_dir, autojump_clock):
    os.mkfifo(run_dir / "inferd.lock")
    assert "regular file" in await refusal(run_dir)


async def test_a_directory_that_anybody_may_write_to_is_refused(
    run_dir, autojump_clock
):
    run_dir.chmod(0o777)
    assert "anybody" in await refusal(run_dir)


async def test_a_directory_behind_a_symlink_is_refused(
    short_dir, run_dir, autojump_clock
):
    (short_dir / "link").symlink_to(run_dir)
    assert "not a directory" in await refusal(short_dir / "link")


def test_no_link_that_came_after_a_socket_gives_away_what_it_leads_to(
    short_dir, run_dir, monkeypatch
):
    """As one of a group can put there who may write to the directory."""
    victim = short_dir / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    bind_first, chown = socket.socket.bind, os.chown
    followed: list[bool] = []

    def bind_and_swap(self, path):
        bind_first(self, path)
        assert stat.S_IMODE(Path(path).lstat().st_mode) == 0o660
        Path(path).unlink()
        Path(path).symlink_to(victim)

    def spy(path, uid, gid, *, follow_symlinks=True):
        followed.append(follow_symlinks)
        chown(path, uid, gid, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(socket.socket, "bind", bind_and_swap)
    monkeypatch.setattr(os, "chown", spy)
    listener = bind(run_dir / "infer.sock", mode=0o660, group=GROUP)
    os.close(listener.socket.detach())
    assert followed == [False]
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600


def test_no_link_in_place_of_a_new_directory_opens_another_to_the_group(
    short_dir, monkeypatch
):
    victim = short_dir / "victim"
    victim.mkdir(mode=0o700)
    mkdir = Path.mkdir

    def mkdir_and_swap(self, mode=0o777, **options):
        mkdir(self, mode, **options)
        self.rmdir()
        self.symlink_to(victim)

    monkeypatch.setattr(Path, "mkdir", mkdir_and_swap)
    with pytest.raises(ListenError, match="socket directory"):
        make_socket_directory(short_dir / "run", group=GROUP)
    assert stat.S_IMODE(victim.stat().st_mode) == 0o700
