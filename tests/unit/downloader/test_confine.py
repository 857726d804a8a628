import ctypes
import os
import socket
import subprocess
import sys
import textwrap

import pytest

from inferd.sandbox import landlock
from inferd.sandbox.privileges import CAP_DAC_READ_SEARCH, UNPRIVILEGED

PR_CAPBSET_DROP = 24
MB = 1024 * 1024


def command(place, script, *options):
    return [
        *(sys.executable, "-P", "-m", "inferd.downloader.confine"),
        *(f"--parent={os.getpid()}", f"--writes={place}"),
        *(f"--file-bytes={MB}", f"--memory-bytes={1024 * MB}", *options),
        *("--", sys.executable, "-c", textwrap.dedent(script)),
    ]


@pytest.fixture
def confined(tmp_path):
    """Run a script that may write to a directory alone."""
    place = tmp_path / "place"
    place.mkdir()

    def run(script, *options, before=None, **environ):
        return subprocess.run(
            command(place, script, *options),
            cwd=place,
            env=os.environ | environ,
            preexec_fn=before,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_it_writes_to_its_directory(confined, tmp_path):
    done = confined(
        """
        import os, pathlib
        pathlib.Path("deep").mkdir()
        pathlib.Path("deep/new").write_text("written")
        pathlib.Path("deep/new").rename("moved")
        pathlib.Path("link").symlink_to("moved")
        pathlib.Path("deep").rmdir()
        print(os.environ["GIVEN"])
        """,
        "--environ=GIVEN=a=b",
    )
    assert (done.stdout, done.stderr) == ("a=b\n", "")
    assert (tmp_path / "place" / "link").read_text() == "written"


ATTEMPTS = {
    "read": "open({path!r}).read()",
    "write": "open({path!r}, 'w')",
    "append": "open({path!r}, 'a')",
    "truncate": "__import__('os').truncate({path!r}, 0)",
    "remove": "__import__('os').unlink({path!r})",
    "move": "__import__('os').rename({path!r}, 'taken')",
    "link": "__import__('os').link({path!r}, 'taken')",
    "make": "open({path!r} + '.new', 'x')",
    "list": "__import__('os').listdir({folder!r})",
    "link in its directory": (
        "__import__('os').symlink({path!r}, 'to') or open('to').read()"
    ),
}


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
def test_it_reaches_no_other_file(confined, tmp_path, attempt):
    assert landlock.version(), "this kernel has no Landlock"
    path = tmp_path / "secret"
    path.write_text("secret")
    done = confined(attempt.format(path=str(path), folder=str(tmp_path)))
    assert done.returncode == 1
    assert "PermissionError" in done.stderr or "Invalid cross-device" in done.stderr
    assert path.read_text() == "secret"
    assert {each.name for each in tmp_path.iterdir()} == {"place", "secret"}


def test_it_reads_what_it_is_given(confined, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    (given / "file").write_text("read")
    script = f"print(open({str(given / 'file')!r}).read())"
    assert confined(script, f"--reads={given}").stdout == "read\n"
    done = confined(f"open({str(given / 'file')!r}, 'w')", f"--reads={given}")
    assert "PermissionError" in done.stderr


def test_what_it_writes_and_uses_is_bounded(confined):
    done = confined(
        f"""
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with open("much", "wb") as file:
            file.write(bytes({MB} + 1))
        """
    )
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert "MemoryError" in confined(f"bytes({2048 * MB})").stderr


READING = f"{CAP_DAC_READ_SEARCH:016x}"
STATE = """
    import os, pathlib
    pathlib.Path("made").write_text("by the program")
    found = [line.split()[1:] for line in open("/proc/self/status")
             if line.startswith(("Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapAmb"))]
    print(found, os.access({path!r}, os.R_OK), open({path!r}).read())
    """


@pytest.fixture
def of_root(tmp_path):
    """A file that root alone reads, in a directory that root alone enters."""
    tmp_path.chmod(0o700)
    path = tmp_path / "of root"
    path.write_text("content")
    path.chmod(0o600)
    return path


@pytest.mark.root
def test_root_s_program_is_nobody_who_reads_what_root_could(confined, of_root):
    done = confined(STATE.format(path=str(of_root)), f"--reads={of_root}")
    nobody = [str(UNPRIVILEGED)] * 4
    state = [nobody, nobody, [], [READING], [READING], [READING]]
    assert (done.stdout, done.stderr) == (f"{state} True content\n", "")
    assert (of_root.parent / "place" / "made").stat().st_uid == UNPRIVILEGED


@pytest.mark.root
def test_another_process_of_that_user_cannot_change_its_memory(tmp_path):
    with subprocess.Popen(
        command(tmp_path, "print(flush=True); input()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        other = subprocess.run(
            ["head", "-c", "1", f"/proc/{process.pid}/mem"],
            user=UNPRIVILEGED,
            group=UNPRIVILEGED,
            extra_groups=(),
            capture_output=True,
            check=False,
        )
        process.communicate(b"\n")
    assert b"Permission denied" in other.stderr


@pytest.mark.root
def test_root_that_may_not_become_another_user_says_so_and_works(confined, of_root):
    done = confined(
        STATE.format(path=str(of_root)),
        f"--reads={of_root}",
        before=_without_capability_to_read,
    )
    assert done.stdout.startswith("[['0', '0', '0', '0']")
    assert done.stderr == (
        "note: the sandbox is weaker: it stays root, which lacks the capabilities to "
        "become another user\n"
    )
    assert (of_root.parent / "place" / "made").stat().st_uid == 0


def _without_capability_to_read():
    number = CAP_DAC_READ_SEARCH.bit_length() - 1
    assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, number) == 0


SOCKETS = {
    "TCP": "socket.create_connection(('127.0.0.1', {port}))",
    "TCP over IPv6": "socket.socket(socket.AF_INET6)",
    "UDP": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "Unix": "socket.socket(socket.AF_UNIX).connect({path!r})",
    "Unix datagrams": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "pair": "socket.socketpair()",
    "pair of datagrams": "socket.socketpair(type=socket.SOCK_DGRAM)",
    "vsock": "socket.socket(socket.AF_VSOCK)",
}
OF_PIP = {"TCP", "TCP over IPv6", "UDP", "netlink"}


@pytest.fixture
def peers(tmp_path):
    """A TCP port that nobody listens on, and a Unix socket that may be written to."""
    with socket.socket() as bound, socket.socket(socket.AF_UNIX) as listener:
        bound.bind(("127.0.0.1", 0))
        listener.bind(str(tmp_path / "place" / "socket"))
        listener.listen()
        yield {"port": bound.getsockname()[1], "path": "socket"}


@pytest.mark.parametrize("attempt", SOCKETS)
def test_it_makes_no_connections_but_those_of_pip(confined, peers, attempt):
    script = f"""
        import socket
        try:
            {SOCKETS[attempt].format(**peers)}
        except OSError as error:
            print(type(error).__name__)
        """
    assert confined(script).stdout == "PermissionError\n"
    said = confined(script, "--network").stdout
    assert (said == "PermissionError\n") == (attempt not in OF_PIP)


def test_pip_can_look_up_names_without_the_sockets_of_name_services(confined):
    script = """
        import socket
        print(socket.getaddrinfo("localhost", 80)[0][0].name)
        """
    assert confined(script, "--network").stdout.startswith("AF_INET")


CALLS = {
    "leave its session": "os.setsid()",
    "leave its group": "os.setpgid(0, 0)",
    "send signals to others": "os.kill(os.getppid(), 0)",
    "make a namespace": "os.unshare(os.CLONE_NEWUSER)",
}


@pytest.mark.parametrize("options", [(), ("--network",)])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_neither_it_nor_its_children_leave_their_group(confined, call, options):
    """Python before 3.12 has no ``unshare``; the C library has."""
    script = f"""
        import ctypes, os
        def unshare(flags):
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(flags):
                raise OSError(ctypes.get_errno(), "unshare")
        os.unshare, os.CLONE_NEWUSER = unshare, 0x10000000
        if os.fork() == 0:
            try:
                {call}
            except OSError as error:
                print(type(error).__name__)
        else:
            os.wait()
        """
    assert confined(script, *options).stdout == "PermissionError\n"
