"""The short version of ``make fuzz``: a real daemon, some hundred hostile clients."""

from contextlib import ExitStack
from itertools import islice

import pytest

from fuzz.corpus import SURFACES
from fuzz.judge import BrokenPromiseError
from fuzz.large import LINES, keeps_memory, send
from fuzz.socket import fire, visits
from fuzz.target import LEAVES
from fuzz.truncation import SHORT, all_cuts, cut_all
from tests.daemon.harness import Connection

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

SEED = 1


def test_hostile_lines_leave_a_daemon_as_it_was(daemon):
    tally = fire(daemon, SEED, 400)
    assert tally.n_lines >= 400
    assert tally.findings == []
    daemon.check()


@pytest.mark.parametrize("surface", SURFACES)
def test_an_exchange_may_end_at_every_byte(daemon, surface):
    cuts = [cut for cut in all_cuts(SHORT) if cut.surface == surface]
    assert len(cuts) == 2 * (len(SHORT[surface]) + 1)
    assert cut_all(daemon, cuts) == []
    daemon.check()


@pytest.mark.parametrize("name", ["an id (embed)", "a role"])
def test_what_does_not_fit_a_frame_is_answered_with_one(daemon, name):
    surface, make = LINES[name]
    assert "processor time" in send(daemon, surface, make())


def test_what_a_closed_connection_held_is_free(daemon):
    assert not keeps_memory(daemon, 4)


def test_a_command_over_the_cap_ends_the_connection(daemon):
    with Connection(daemon.daemon.admin_sock) as connection:
        connection.pour(b"x" * 65536 for _ in range(100))
        frames = connection.read_to_eof()
    assert frames[-1]["ok"] is False


def test_what_stays_behind_is_noticed(daemon, monkeypatch):
    daemon.check()  # what others left has gone
    monkeypatch.setattr("fuzz.target.SETTLE_S", 0.1)
    path = daemon.daemon.directory / LEAVES["v1"]
    with ExitStack() as stack:
        for _ in range(8):  # more than the descriptors that come and go by themselves
            connection = stack.enter_context(Connection(path))
            connection.ask({"id": "here", "messages": []})  # by now it is accepted
        with pytest.raises(BrokenPromiseError, match="n_fds"):
            daemon.check()


def test_memory_that_grew_is_noticed(daemon):
    with pytest.raises(BrokenPromiseError, match="memory"):
        daemon.check(max_growth_bytes=-(1 << 40))


def test_visits_follow_from_the_seed():
    first, second, other = (list(islice(visits(at), 30)) for at in (1, 1, 2))
    assert first == second != other
    assert [each.number for each in first] == list(range(30))
