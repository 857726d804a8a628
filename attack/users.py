"""Processes that are other users for good, and do as they are told."""

import ctypes
import grp
import multiprocessing
import os
import resource
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, Self

VICTIM: Final = 70_101
ATTACKER: Final = 70_102
SERVICE: Final = 70_103
"""Users that no account has to have."""
OPEN_FILES: Final = 8192
"""Descriptors that a process may need: a connection each, and what it sends along."""
PR_SET_PDEATHSIG: Final = 1
END_S: Final = 5.0
"""Seconds in which a process that is to end does, before it is killed."""

_chosen: Final[list[str]] = []
_fork: Final = multiprocessing.get_context("fork")


class FailedError(Exception):
    """What a process was told to do failed; its text is the traceback there."""


@dataclass(frozen=True)
class User:
    """Whom the kernel tells the daemon of.

    Args:
        uid: of the user, and of the user's own group.
        gid: of the group that may connect.
    """

    uid: int
    gid: int

    def become(self) -> None:
        """Be this user for good; nothing, where this process is not root's."""
        if os.geteuid() == 0:
            os.setgroups([self.gid])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)


def choose_group(name: str) -> None:
    """Have attacker and victim be in a group: that of a service which runs already."""
    _chosen.append(name)


def shared_group() -> grp.struct_group:
    """Give the group in which attacker and victim are: some group that is not root's."""
    if _chosen:
        return grp.getgrnam(_chosen[-1])
    if os.geteuid() != 0:
        return grp.getgrgid(os.getegid())
    return next(each for each in grp.getgrall() if each.gr_gid != 0)


class Person:
    """A process of a user's, forked from this one, which calls functions for us.

    Args:
        user: whose it is.
    """

    def __init__(self, user: User) -> None:
        self._pipe, theirs = _fork.Pipe()
        self._process = _fork.Process(
            target=_live, args=(user, theirs, os.getpid()), daemon=True
        )
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Have a function of some module called there; give what it gives.

        Raises:
            FailedError: it raised.
        """
        self.begin(function, *args)
        return self.result()

    def begin(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called, whose first argument is the pipe to here."""
        self._pipe.send((function, args))

    def tell(self, word: str) -> None:
        """Send a word to the function that runs there."""
        self._pipe.send(word)

    def hears(self, within_s: float) -> bool:
        """Wait until there is a word or a result."""
        return self._pipe.poll(within_s)

    def result(self) -> Any:
        """Wait for what the function gives, or for a word that it sends.

        Raises:
            FailedError: it raised, or its process ended.
        """
        try:
            found = self._pipe.recv()
        except EOFError:
            raise FailedError("the process has ended") from None
        if isinstance(found, FailedError):
            raise found
        return found

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.terminate()
        self._process.join(END_S)
        self._process.kill()
        self._process.join()
        self._process.close()


def _live(user: User, pipe: Connection, parent: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    user.become()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # which becoming undoes
    if os.getppid() != parent:
        return
    while True:
        try:
            order = pipe.recv()
        except (EOFError, OSError):
            return
        if isinstance(order, str):
            continue  # a word that came after the function had ended
        function, args = order
        try:
            pipe.send(function(pipe, *args))
        except Exception:  # noqa: BLE001  # told to whoever asked
            pipe.send(FailedError(traceback.format_exc()))
