import errno
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, strategies as st

from inferd.server.telemetry.log_file import LogFile

PARENT = "logs"


@pytest.fixture
def path(tmp_path):
    return tmp_path / PARENT / "log"


def log_file(path, max_bytes=1000, generations=3) -> LogFile:
    return LogFile(path, max_bytes=max_bytes, generations=generations)


def write(path, *lines: str, **bounds: int) -> None:
    file = log_file(path, **bounds)
    for line in lines:
        file.write([f"{line}\n".encode()])
    file.close()


def write_batch(path, lines: list[bytes], **bounds: int) -> None:
    """Write lines together, as the thread does."""
    file = log_file(path, **bounds)
    while lines:
        lines = lines[file.write(lines) :]
    file.close()


def kept(path) -> dict[str, str]:
    return {each.name: each.read_text() for each in path.parent.iterdir()}


# --- the file and its directory -----------------------------------------------------------


def test_nobody_else_can_read_the_file_or_enter_its_directory(path):
    before = os.umask(0)
    try:
        write(path, "one")
    finally:
        os.umask(before)
    assert path.read_text() == "one\n"
    assert path.stat().st_mode & 0o7777 == 0o600
    assert path.parent.stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o601, 0o4700])
def test_a_file_that_others_could_read_is_theirs_no_more(path, mode):
    write(path, "one")
    path.chmod(mode)
    write(path, "two")
    assert path.stat().st_mode & 0o7777 == 0o600
    assert path.read_text() == "one\ntwo\n"


def test_a_directory_that_others_may_enter_is_left_as_it_is(path):
    path.parent.mkdir(mode=0o755)
    write(path, "one")
    assert path.parent.stat().st_mode & 0o7777 == 0o755


def test_nothing_is_made_before_there_is_a_line(path):
    log_file(path).close()
    assert not path.parent.exists()


def test_only_the_directory_and_the_one_above_are_made(tmp_path):
    write(tmp_path / "a" / "b" / "log", "one")
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "c" / "d" / "e" / "log", "one")


def test_what_was_there_is_kept(path):
    write(path, "one")
    write(path, "two")
    assert path.read_text() == "one\ntwo\n"


def test_a_link_is_not_followed(path, tmp_path):
    path.parent.mkdir(mode=0o700)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        write(path, "one")
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        write(path, "one")
    assert [each.name for each in tmp_path.iterdir()] == [PARENT]


def test_a_file_with_another_name_is_not_written_to(path, tmp_path):
    other = tmp_path / "config.toml"
    other.touch()
    path.parent.mkdir(mode=0o700)
    path.hardlink_to(other)
    with pytest.raises(PermissionError, match="alone"):
        write(path, "one")
    assert other.read_text() == ""


def test_a_pipe_or_a_directory_in_its_place_is_an_error_at_once(path):
    path.parent.mkdir(mode=0o700)
    os.mkfifo(path)
    with pytest.raises(PermissionError, match="alone"):
        write(path, "one")
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write(path, "one")


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_directory_that_others_may_write_to_is_refused(path, mode):
    path.parent.mkdir(mode=0o700)
    path.parent.chmod(mode)
    with pytest.raises(PermissionError, match="other users may write"):
        write(path, "one")


# --- rotation ---------------------------------------------------------------------------


def test_a_full_file_becomes_the_first_generation_and_so_on(path):
    write(path, *"abcdefghi", max_bytes=4)
    assert kept(path) == {
        "log": "i\n",
        "log.1": "g\nh\n",
        "log.2": "e\nf\n",
        "log.3": "c\nd\n",
    }


def test_a_batch_that_does_not_fit_goes_on_in_the_next_file(path):
    write_batch(path, [b"%c\n" % letter for letter in b"abcdefg"], max_bytes=6)
    assert kept(path) == {"log": "g\n", "log.1": "d\ne\nf\n", "log.2": "a\nb\nc\n"}


def test_without_generations_only_the_last_lines_are_kept(path):
    write(path, *"abcde", max_bytes=4, generations=0)
    assert kept(path) == {"log": "e\n"}


def test_a_line_that_fits_in_no_file_has_one_of_its_own(path):
    write(path, "x" * 100, max_bytes=20)
    assert kept(path) == {"log": "x" * 100 + "\n"}
    path.unlink()
    write(path, "short", "x" * 100, "short", max_bytes=20)
    assert kept(path) == {
        "log": "short\n",
        "log.1": "x" * 100 + "\n",
        "log.2": "short\n",
    }


LINES = st.lists(st.integers(0, 40).map(lambda n: "x" * n), max_size=60)
BOUNDS = st.fixed_dictionaries(
    {"max_bytes": st.integers(1, 100), "generations": st.integers(0, 4)}
)


@pytest.mark.slow
@given(LINES, BOUNDS, st.integers(1, 5), st.booleans())
def test_files_are_bounded_and_have_the_last_lines(
    tmp_path_factory, lines, bounds, n_starts, in_batches
):
    path = tmp_path_factory.mktemp("rotation") / PARENT / "log"
    numbered = [f"{n} {line}" for n, line in enumerate(lines)]
    for start in range(n_starts):
        mine = numbered[start * len(lines) // n_starts :][: -(-len(lines) // n_starts)]
        if in_batches:
            write_batch(path, [f"{line}\n".encode() for line in mine], **bounds)
        else:
            write(path, *mine, **bounds)
    if not lines:
        return
    files = sorted(path.parent.iterdir(), reverse=True)
    files = [*(each for each in files if each != path), path]
    assert len(files) <= 1 + bounds["generations"]
    texts = [each.read_text() for each in files]
    assert all(
        len(text) <= bounds["max_bytes"] or text.count("\n") == 1 for text in texts
    )
    assert "".join(texts).endswith(f"{numbered[-1]}\n")


# --- what others do ---------------------------------------------------------------------


def test_a_file_that_was_moved_or_removed_is_begun_anew(path):
    file = log_file(path)
    file.write([b"one\n"])
    path.rename(path.with_name("moved"))
    file.write([b"two\n"])
    path.unlink()
    file.write([b"three\n"])
    file.close()
    assert kept(path) == {"moved": "one\n", "log": "three\n"}


def test_a_file_that_was_emptied_goes_on_at_its_start(path):
    file = log_file(path)
    file.write([b"one\n"])
    os.truncate(path, 0)
    file.write([b"two\n"])
    file.close()
    assert path.read_bytes() == b"two\n"


def test_a_directory_that_vanished_is_made_again(path):
    file = log_file(path)
    file.write([b"one\n"])
    path.unlink()
    path.parent.rmdir()
    file.write([b"two\n"])
    file.close()
    assert kept(path) == {"log": "two\n"}


def test_a_directory_that_cannot_be_opened_fails_until_it_can(path):
    path.parent.touch()
    file = log_file(path)
    for _ in range(2):
        with pytest.raises(NotADirectoryError):
            file.write([b"lost\n"])
    path.parent.unlink()
    file.write([b"kept\n"])
    file.close()
    assert path.read_text() == "kept\n"


def test_a_full_file_that_cannot_be_moved_does_not_grow(path):
    file = log_file(path, max_bytes=10, generations=1)
    path.with_name("log.1").mkdir(parents=True)
    path.parent.chmod(0o700)
    file.write([b"12345678\n"])
    with pytest.raises(IsADirectoryError):
        file.write([b"lost\n"])
    path.with_name("log.1").rmdir()
    file.write([b"kept\n"])
    file.close()
    assert kept(path) == {"log": "kept\n", "log.1": "12345678\n"}


def test_two_daemons_may_share_a_file(path):
    one, two = (log_file(path, max_bytes=40) for _ in range(2))
    for n in range(10):
        one.write([b"one %d\n" % n])
        two.write([b"two %d\n" % n])
    one.close()
    two.close()
    lines = "".join(kept(path).values()).splitlines()
    assert sorted(lines) == sorted(
        f"{who} {n}" for who in ("one", "two") for n in range(10)
    )


def race(path, who: str, n_lines: int) -> None:
    write(
        path, *(f"{who} {n:04}" for n in range(n_lines)), max_bytes=90, generations=60
    )


def test_two_daemons_that_rotate_a_file_at_once_lose_no_line(path):
    n_lines = 100
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(race, path, who, n_lines) for who in ("one", "two")]
        for each in done:
            each.result()
    lines = "".join(kept(path).values()).splitlines()
    assert sorted(lines) == [
        f"{who} {n:04}" for who in ("one", "two") for n in range(n_lines)
    ]


@pytest.mark.parametrize("generations", [0, 1])
def test_a_file_that_another_daemon_has_just_rotated_is_not_rotated_again(
    path, generations, monkeypatch
):
    one, two = (log_file(path, max_bytes=4, generations=generations) for _ in range(2))
    for letter in b"ab":
        one.write([b"%c\n" % letter])
    rotate = one._rotate

    def come_second() -> None:
        two.write([b"c\n"])
        rotate()

    monkeypatch.setattr(one, "_rotate", come_second)
    one.write([b"d\n"])
    one.close()
    two.close()
    full = {"log.1": "a\nb\n"} if generations else {}
    assert kept(path) == {"log": "c\nd\n", **full}


def test_a_descriptor_that_somebody_closed_is_opened_anew(path):
    file = log_file(path)
    file.write([b"one\n"])
    os.close(file._fd)
    file.write([b"two\n"])
    file.close()
    assert path.read_text() == "one\ntwo\n"


def test_a_descriptor_that_is_a_clients_now_gets_no_line_and_stays_open(path):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        file = log_file(path)
        file.write([b"one\n"])
        number = file._fd
        os.dup2(ours.fileno(), number)
        file.write([b"two\n"])
        file.close()
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
        os.close(number)
    assert path.read_text() == "one\ntwo\n"


# --- torn lines -------------------------------------------------------------------------


def test_a_line_that_was_torn_by_a_kill_is_ended_at_the_next_start(path):
    write(path, "one")
    with path.open("a") as file:
        file.write('{"half')
    write(path, "two")
    assert path.read_text() == 'one\n{"half\ntwo\n'


def test_a_line_that_did_not_fit_is_an_error_and_ended_before_the_next(
    path, monkeypatch
):
    write_all = os.write
    file = log_file(path)
    monkeypatch.setattr("os.write", lambda fd, data: write_all(fd, data[:3]))
    with pytest.raises(OSError, match="No space left") as caught:
        file.write([b"first\n"])
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    file.write([b"second\n"])
    file.close()
    assert path.read_text() == "fir\nsecond\n"


def test_of_a_batch_that_did_not_fit_the_torn_line_is_written_again(path, monkeypatch):
    write_all = os.write
    file = log_file(path)
    lines = [b"first\n", b"second\n", b"third\n"]
    monkeypatch.setattr("os.write", lambda fd, data: write_all(fd, data[:9]))
    assert file.write(lines) == 1
    monkeypatch.undo()
    assert file.write(lines[1:]) == 2
    file.close()
    assert path.read_text() == "first\nsec\nsecond\nthird\n"
