import os
from pathlib import Path

import pytest
import trio

from inferd.server.listen import ListenError
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import make_daemon


@pytest.fixture
def run_dir(short_dir):
    path = short_dir / "run"
    path.mkdir(mode=0o700)
    return path


async def refusal(directory: Path) -> str:
    """Start a daemon that must not start; give its reason."""
    reasons: list[str] = []
    try:
        with trio.fail_after(1):
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
    monkeypatch.setattr("inferd.server.listen._refuse_odd_lock", lambda _: None)
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
