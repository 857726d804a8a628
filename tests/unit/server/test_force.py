import json

import pytest
import structlog
from structlog.testing import capture_logs

from inferd.admission.gate import Admission
from inferd.config import (
    AccessRule,
    AccessSettings,
    AdmissionSettings,
    Config,
    ConfigError,
    LimitSettings,
    LogSettings,
    MemorySettings,
    UidRange,
    UserSettings,
)
from inferd.server.access import NOBODY
from inferd.server.force import Force, nothing_to_read
from inferd.server.hangup import Hangups
from inferd.server.holdings import MediaRoom
from inferd.server.large_lines import LargeLines
from inferd.server.limits import MAX_MEDIA_FILES
from inferd.server.metrics import Metrics
from inferd.server.reception import Reception
from inferd.server.register import Register
from inferd.server.room import Room
from inferd.server.surroundings import Surroundings
from inferd.server.turns import Turns
from inferd.server.unread import Unread
from tests.fakes.log import logged


@pytest.fixture(autouse=True)
def _enough_descriptors(monkeypatch):
    monkeypatch.setattr("inferd.server.force.n_allowed", lambda: 100_000)


def make_force(config: Config) -> Force:
    return Force(
        config=config,
        reception=Reception(Metrics()),
        around=Surroundings(
            hangups=Hangups(),
            register=Register(Metrics()),
            room=Room(1),
            large_lines=LargeLines(1),
            unread=Unread(1),
            media=MediaRoom(config.limits, 1, int),
            limits=config.limits,
        ),
        listeners=Room(1),
        turns=Turns(Admission(max_active=1, max_queued=1)),
        n_backends=1,
    )


def test_what_a_change_says_is_everywhere():
    force = make_force(Config())
    limits = LimitSettings(
        max_connections=11,
        max_admin_connections=12,
        max_large_lines=13,
        idle_s=14,
        max_unread_bytes=15,
        max_media_bytes=16,
    )
    access = AccessSettings(infer=AccessRule(uids=(5,)))
    admission = AdmissionSettings(max_queued=15)
    new = Config(limits=limits, access=access, admission=admission)
    applied, _ = force.change(new)
    assert len(applied) == 8
    assert force.config == new
    assert (force.around.room.n_places, force.listeners.n_places) == (11, 12)
    assert (force.around.large_lines.n_turns, force.around.limits) == (13, limits)
    assert force.around.unread.max_bytes == 15
    assert force.around.media._bytes.bound == 16
    assert force.around.media._files.bound == MAX_MEDIA_FILES
    assert force.turns._gate._backlog.places.bound == 15
    assert force.reception.access.rules["infer.sock"].uids == {5}


def test_another_level_holds_for_the_next_line_of_a_log_that_is_written(monkeypatch):
    log = structlog.get_logger("test")
    with logged(monkeypatch) as lines:
        force = make_force(Config())
        for level in ("debug", "error", "info"):
            force.change(Config(log=LogSettings(level=level)))
            log.debug("detail", at=level)
            log.info("event", at=level)
    said = [(line["msg"], line["at"]) for line in map(json.loads, lines)]
    assert said == [("detail", "debug"), ("event", "debug"), ("event", "info")]


def test_what_needs_a_restart_is_not_in_force():
    force = make_force(Config())
    new = Config(memory=MemorySettings(budget=5))
    assert force.change(new) == ([], ["memory.budget"])
    assert force.config == Config()


def test_a_change_that_cannot_be_made_changes_nothing(monkeypatch):
    force = make_force(Config())
    limits = LimitSettings(max_connections=11)
    access = AccessSettings(infer=AccessRule(uids=("no-such-user",)))
    with pytest.raises(ConfigError, match=r"access.infer.uids = 'no-such-user'"):
        force.change(Config(limits=limits, access=access))
    monkeypatch.setattr("inferd.server.force.n_allowed", lambda: 10)
    with pytest.raises(ConfigError, match="open files = 10"):
        force.change(Config(limits=limits))
    assert (force.config, force.around.room.n_places) == (Config(), 1)
    assert force.reception.access.rules == {"admin.sock": NOBODY}


def test_a_user_that_is_not_there_stops_the_start():
    access = AccessSettings(infer=AccessRule(uids=("no-such-user",)))
    with pytest.raises(ConfigError, match="no-such-user"):
        make_force(Config(access=access))


def test_there_are_as_many_places_as_configured():
    force = make_force(Config(limits=LimitSettings(max_connections=5)))
    with capture_logs() as log:
        force.share_out()
    assert (force.around.room.n_places, log) == (5, [])


def test_where_descriptors_are_few_there_are_fewer_and_a_warning(monkeypatch):
    monkeypatch.setattr("inferd.server.force.n_allowed", lambda: 64)
    force = make_force(Config())
    with capture_logs() as log:
        force.share_out()
    [line] = log
    assert (line["event"], line["log_level"]) == ("connections.lowered", "warning")
    assert line["open_files"] == 64
    assert line["max_connections"] == force.around.room.n_places == 8
    assert line["max_admin_connections"] == force.listeners.n_places == 3
    assert line["max_media"] == force.around.media._files.bound == 2
    assert force.around.custody.max_fds == 8


def test_who_has_no_file_has_nothing_to_read():
    with pytest.raises(ConfigError, match="no configuration"):
        nothing_to_read()


def test_who_counts_as_whom_is_read_again_and_known_to_all_who_ask(tmp_path):
    file = tmp_path / "subuid"
    file.write_text("70001:100000:65536\n")
    users = UserSettings(subuid_file=str(file), subgid_file="/dev/null")
    force = make_force(Config(users=users))
    assert force.reception.identities is force.around.identities
    assert force.around.identities.of(100_001, 5).user == 70_001
    file.write_text("70002:100000:65536\n")
    assert force.change(Config(users=users)) == ([], [])
    assert force.reception.identities is force.around.identities
    assert force.around.identities.of(100_001, 5).user == 70_002
    both = (UidRange(first=10, count=2), UidRange(first=11, count=1))
    with pytest.raises(ConfigError, match="in common"):
        force.change(Config(users=UserSettings(ranges=both)))
    assert force.around.identities.of(100_001, 5).user == 70_002
