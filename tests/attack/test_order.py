"""Who is served first, where all have asked while the daemon stood still."""

import os
import signal
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

import pytest

from attack.kinds.loop import CANCEL, CONFIG, REFUSED_LINE
from attack.scene import Scene
from attack.users import ATTACKER, VICTIM, shared_group
from tests.daemon.harness import DaemonProcess
from tests.daemon.users import as_user, needs_root

pytestmark = [
    pytest.mark.slow,
    pytest.mark.short_version,
    pytest.mark.alone,
    needs_root,
]

ROOT = Path(__file__).parents[2]
N_CONNECTIONS = 100
N_LINES = 256
"""Of each connection; all of them are in the kernel's buffers at once."""
N_BEFORE = N_CONNECTIONS * N_LINES // 25
"""Answers that the attacker may have before the victim has one."""


def connect_as(daemon: DaemonProcess, uid: int):
    with as_user(uid, shared_group().gr_gid):
        return daemon.connect()


def answered_before(crowd, victims):
    """Count what a crowd is answered before each of some others is."""
    before: dict[object, int] = {}
    n_answered = 0
    with DefaultSelector() as selector:
        for each in (*crowd, *victims):
            selector.register(each._sock, EVENT_READ, each)
        while len(before) < len(victims):
            for key, _ in selector.select():
                data = os.read(key.fd, 1 << 16)
                assert data, "a connection was closed"
                if key.data in victims:
                    before.setdefault(key.data, n_answered)
                else:
                    n_answered += data.count(b"\n")
    return list(before.values())


@pytest.mark.parametrize("line", [REFUSED_LINE, CANCEL + REFUSED_LINE])
@pytest.mark.parametrize("is_new", [True, False], ids=["newcomers", "at home"])
def test_a_user_is_answered_before_the_most_of_what_another_has_sent(is_new, line):
    scene = Scene(ROOT)
    with scene.daemon(CONFIG) as daemon:
        crowd = (
            []
            if is_new
            else [connect_as(daemon, ATTACKER) for _ in range(N_CONNECTIONS)]
        )
        at_home = connect_as(daemon, VICTIM)
        at_home.send_raw(REFUSED_LINE)
        assert at_home.frame()["code"] == "invalid_request"
        daemon.send_signal(signal.SIGSTOP)
        crowd = crowd or [connect_as(daemon, ATTACKER) for _ in range(N_CONNECTIONS)]
        for each in crowd:
            each.send_raw(line * N_LINES)
        newcomer = connect_as(daemon, VICTIM)
        for each in (at_home, newcomer):
            each.send_raw(REFUSED_LINE)
        daemon.send_signal(signal.SIGCONT)
        found = answered_before(crowd, [at_home, newcomer])
    assert max(found) <= N_BEFORE
    assert scene.notes == []
