import json

import pytest
import structlog
from structlog.testing import capture_logs

from inferd.admission.control import Admission
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import (
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
from inferd.fair_limiter import FairLimiter
from inferd.limits.server import MAX_MEDIA_FILES
from inferd.server.admin.running_config import RunningConfig, no_config_file
from inferd.server.connection.deps import ConnectionDeps
from inferd.server.connection.disconnect_watch import DisconnectWatch
from inferd.server.connection.limit import ConnectionLimit
from inferd.server.connection.output_quota import OutputQuota
from inferd.server.identity.access import OPERATORS_ONLY
from inferd.server.inflight import InFlight
from inferd.server.listen.acceptor import Acceptor
from inferd.server.media.quota import MediaQuota
from inferd.server.queue.requests import RequestQueue
from inferd.server.telemetry.metrics import Metrics
from tests.fakes.log import logged
from tests.fakes.serving import idle_scheduler


@pytest.fixture(autouse=True)
def _enough_descriptors(monkeypatch):
    monkeypatch.setattr("inferd.server.admin.running_config.fd_limit", lambda: 100_000)


def make_running_config(config: Config) -> RunningConfig:
    return RunningConfig(
        config=config,
        acceptor=Acceptor(Metrics(), idle_scheduler()),
        deps=ConnectionDeps(
            disconnects=DisconnectWatch(),
            in_flight=InFlight(Metrics()),
            metrics=Metrics(),
            connection_limit=ConnectionLimit(1),
            line_limiter=FairLimiter(1),
            output_quota=OutputQuota(1),
            media_quota=MediaQuota(config.limits, 1, int),
            limits=config.limits,
        ),
        admin_limit=ConnectionLimit(1),
        queue=RequestQueue(Admission(max_active=1, max_queued=1)),
        n_backends=1,
    )


def test_changed_settings_reach_every_part():
    running_config = make_running_config(Config())
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
    applied, _ = running_config.apply(new)
    assert len(applied) == 8
    assert running_config.config == new
    assert (
        running_config.deps.connection_limit.max_connections,
        running_config.admin_limit.max_connections,
    ) == (11, 12)
    assert (running_config.deps.line_limiter.limit, running_config.deps.limits) == (
        13,
        limits,
    )
    assert running_config.deps.output_quota.max_bytes == 15
    assert running_config.deps.media_quota._bytes.limit == 16
    assert running_config.deps.media_quota._files.limit == MAX_MEDIA_FILES
    assert running_config.queue._admission._backlog.requests.limit == 15
    assert running_config.acceptor.access.rules["infer.sock"].uids == {5}


def test_another_level_holds_for_the_next_line_of_a_log_that_is_written(monkeypatch):
    log = structlog.get_logger("test")
    with logged(monkeypatch) as lines:
        running_config = make_running_config(Config())
        for level in ("debug", "error", "info"):
            running_config.apply(Config(log=LogSettings(level=level)))
            log.debug("detail", at=level)
            log.info("event", at=level)
    said = [(line["msg"], line["at"]) for line in map(json.loads, lines)]
    assert said == [("detail", "debug"), ("event", "debug"), ("event", "info")]


def test_settings_that_need_a_restart_are_not_applied():
    running_config = make_running_config(Config())
    new = Config(memory=MemorySettings(budget=5))
    assert running_config.apply(new) == ([], ["memory.budget"])
    assert running_config.config == Config()


def test_an_invalid_configuration_changes_nothing(monkeypatch):
    running_config = make_running_config(Config())
    limits = LimitSettings(max_connections=11)
    access = AccessSettings(infer=AccessRule(uids=("no-such-user",)))
    with pytest.raises(ConfigError, match=r"access.infer.uids = 'no-such-user'"):
        running_config.apply(Config(limits=limits, access=access))
    monkeypatch.setattr("inferd.server.admin.running_config.fd_limit", lambda: 10)
    with pytest.raises(ConfigError, match="open files = 10"):
        running_config.apply(Config(limits=limits))
    assert (
        running_config.config,
        running_config.deps.connection_limit.max_connections,
    ) == (
        Config(),
        1,
    )
    assert running_config.acceptor.access.rules == {"admin.sock": OPERATORS_ONLY}


def test_a_missing_user_stops_the_start():
    access = AccessSettings(infer=AccessRule(uids=("no-such-user",)))
    with pytest.raises(ConfigError, match="no-such-user"):
        make_running_config(Config(access=access))


def test_connection_limits_are_as_configured():
    running_config = make_running_config(
        Config(limits=LimitSettings(max_connections=5))
    )
    with capture_logs() as log:
        running_config.allocate_fds()
    assert (running_config.deps.connection_limit.max_connections, log) == (5, [])


def test_few_descriptors_lower_the_connection_limits_with_a_warning(monkeypatch):
    monkeypatch.setattr("inferd.server.admin.running_config.fd_limit", lambda: 64)
    running_config = make_running_config(Config())
    with capture_logs() as log:
        running_config.allocate_fds()
    [line] = log
    assert (line["event"], line["log_level"]) == ("connections.lowered", "warning")
    assert line["open_files"] == 64
    assert (
        line["max_connections"]
        == running_config.deps.connection_limit.max_connections
        == 9
    )
    assert (
        line["max_admin_connections"] == running_config.admin_limit.max_connections == 2
    )
    assert line["max_media"] == running_config.deps.media_quota._files.limit == 1
    assert running_config.deps.fd_quota.max_fds == 8


def test_without_a_configuration_file_a_reload_fails():
    with pytest.raises(ConfigError, match="no configuration"):
        no_config_file()


def test_the_mapping_of_users_is_reloaded_everywhere(tmp_path):
    file = tmp_path / "subuid"
    file.write_text("70001:100000:65536\n")
    users = UserSettings(subuid_file=str(file), subgid_file="/dev/null")
    running_config = make_running_config(Config(users=users))
    assert running_config.acceptor.identities is running_config.deps.identities
    assert running_config.deps.identities.of(100_001, 5).user == 70_001
    file.write_text("70002:100000:65536\n")
    assert running_config.apply(Config(users=users)) == ([], [])
    assert running_config.acceptor.identities is running_config.deps.identities
    assert running_config.deps.identities.of(100_001, 5).user == 70_002
    both = (UidRange(first=10, count=2), UidRange(first=11, count=1))
    with pytest.raises(ConfigError, match="in common"):
        running_config.apply(Config(users=UserSettings(ranges=both)))
    assert running_config.deps.identities.of(100_001, 5).user == 70_002


def test_changed_aliases_are_names_from_then_on():
    config = Config(backend=(MockSettings(name="m", aliases=("old",)),))
    running_config = make_running_config(config)
    assert running_config.names.aliases_of("m") == ("old",)
    new = Config(backend=(MockSettings(name="m", aliases=("new",)),))
    assert running_config.apply(new).applied == ["backend m: aliases"]
    assert running_config.names.aliases_of("m") == ("new",)


def test_backends_that_have_no_descriptors_are_refused_before_anything_changes(
    monkeypatch,
):
    running_config = make_running_config(Config())
    monkeypatch.setattr("inferd.server.admin.running_config.fd_limit", lambda: 64)
    new = Config(backend=tuple(MockSettings(name=f"m{at}") for at in range(32)))
    for take in (
        running_config.check,
        lambda each: running_config.apply(each, each.backend),
    ):
        with pytest.raises(ConfigError, match="open files = 64"):
            take(new)
        assert running_config.n_backends == 1
    running_config.apply(Config())
