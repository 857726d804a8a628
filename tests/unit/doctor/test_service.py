import grp
import os
import subprocess
from pathlib import Path

import pytest

from inferd.bridge.identity.token import TokenRecord
from inferd.bridge.identity.token_file import changing_tokens
from inferd.config.kinds.kind import RequiredFile
from inferd.config.parse import parse_config
from inferd.doctor.check import Finding, Verdict
from inferd.doctor.service import (
    check_accounts,
    check_bridge,
    check_readable,
    check_unit,
    environment_of,
    service_may_read,
    service_uid,
)
from inferd.service.units import SYSTEM, UnitState, instance
from tests.cases import each_case

WELL = UnitState(
    load="loaded",
    active="active",
    sub="running",
    result="success",
    exit_status="0",
    status="ready",
    n_restarts=0,
    fragment="/etc/systemd/system/inferd.service",
    drop_ins=(),
    needs_reload=False,
    is_listening=True,
)
FAILED = WELL._replace(
    active="failed", sub="failed", result="exit-code", exit_status="2", status=""
)


def test_a_service_that_runs_is_well():
    finding = check_unit(SYSTEM, WELL)
    assert (finding.verdict, finding.detail) == (
        Verdict.OK,
        "inferd.service is active (ready)",
    )


def test_a_service_that_is_stopped_is_well():
    stopped = WELL._replace(active="inactive", sub="dead")
    assert "the next request starts it" in check_unit(SYSTEM, stopped).detail
    assert check_unit(SYSTEM, stopped).verdict is Verdict.OK


@pytest.fixture
def tokens(tmp_path) -> Path:
    path: Path = tmp_path / "tokens.json"
    with changing_tokens(path, reader_gid=os.getegid()) as made:
        made.append(TokenRecord(id="0" * 12, name="ada", sha256="0" * 64))
    return path


def bridge_finding(
    tokens: Path, state: UnitState | None = WELL, text: str = "", gid: int | None = None
) -> Finding:
    group = grp.struct_group(("g", "", os.getegid() if gid is None else gid, []))
    return check_bridge(state, parse_config(text), tokens, lambda _: group)


def test_a_bridge_that_serves_is_well_and_one_that_nobody_wants_as_well(
    tokens, monkeypatch
):
    monkeypatch.setattr("inferd.service.private_file.ROOT_UID", os.getuid())
    finding = bridge_finding(tokens)
    assert finding.verdict is Verdict.OK
    assert finding.detail.endswith("; 1 tokens")
    off = WELL._replace(active="inactive", is_listening=False)
    assert (
        "systemctl enable --now inferd-bridge.socket"
        in bridge_finding(tokens, off).detail
    )


def test_what_keeps_callers_of_the_bridge_out_is_told(tokens, monkeypatch, tmp_path):
    monkeypatch.setattr("inferd.service.private_file.ROOT_UID", os.getuid())
    gateway = bridge_finding(tokens, text="[bridge]\ngateway = true\n")
    assert "access.gateways does not name inferd-bridge" in gateway.detail
    assert "may not read" in bridge_finding(tokens, gid=4711).detail
    assert "token add NAME --system" in bridge_finding(tmp_path / "none").hint
    tokens.chmod(0o666)
    assert bridge_finding(tokens).verdict is Verdict.FAILED


@each_case(
    ("state", "detail", "hint"),
    [
        (None, "does not say", "systemctl status inferd.service"),
        (WELL._replace(load="not-found"), "is not-found", "sudo make install"),
        (
            FAILED._replace(status="did not start: no such file"),
            "has failed: did not start: no such file",
            "journalctl -u inferd -n 20",
        ),
        (FAILED, "has failed: exit-code, exit status 2", "journalctl"),
        (
            FAILED._replace(exit_status="203"),
            "its program cannot be started (exit status 203)",
            "sudo make install",
        ),
        (
            WELL._replace(is_listening=False),
            "does not listen",
            "sudo systemctl enable --now inferd.socket inferd.service",
        ),
        (
            WELL._replace(needs_reload=True),
            "have changed",
            "sudo systemctl daemon-reload; sudo systemctl restart inferd.service",
        ),
        (
            WELL._replace(active="activating", sub="auto-restart", n_restarts=7),
            "ends again and again, 7 times",
            "journalctl -u inferd -n 20",
        ),
    ],
)
def test_what_keeps_a_service_from_running_is_told(state, detail, hint):
    finding = check_unit(SYSTEM, state)
    assert finding.verdict in (Verdict.FAILED, Verdict.WARNING)
    assert detail in finding.detail
    assert finding.hint.startswith(hint)


DROP_IN = "/etc/systemd/system/inferd.service.d/mine.conf"


@pytest.mark.parametrize(
    ("state", "problems"),
    [
        (WELL, [f"{DROP_IN}:2: Unknown key name 'Nonsense' in section 'Service'"]),
        (FAILED._replace(exit_status="226"), []),
    ],
)
def test_a_drop_in_that_does_harm_is_set_aside_and_kept(state, problems):
    found = check_unit(SYSTEM, state._replace(drop_ins=(DROP_IN,)), problems)
    assert found.verdict is Verdict.FAILED
    assert found.detail.startswith(f"{DROP_IN}: ")
    assert found.hint.startswith(f"sudo mv {DROP_IN} {DROP_IN}.off; ")
    assert "rm " not in found.hint


def test_a_drop_in_of_a_service_that_runs_is_no_problem():
    assert check_unit(SYSTEM, WELL._replace(drop_ins=(DROP_IN,))).verdict is Verdict.OK


def missing(_: str) -> object:
    raise KeyError


@pytest.mark.parametrize(
    ("find_user", "find_group", "detail"),
    [
        (missing, str, "the user inferd does not exist"),
        (str, missing, "the group inferd does not exist"),
        (missing, missing, "the user inferd and the group inferd do not exist"),
    ],
)
def test_accounts_that_are_missing_are_told(find_user, find_group, detail, tmp_path):
    sysusers = tmp_path / "inferd.conf"
    finding = check_accounts(find_user, find_group, sysusers)
    assert (finding.verdict, finding.detail) == (Verdict.FAILED, detail)
    assert finding.hint == "sudo make install"  # the service is not installed
    sysusers.touch()
    finding = check_accounts(find_user, find_group, sysusers)
    assert finding.hint.startswith(f"sudo systemd-sysusers {sysusers}; ")


@each_case(
    ("path", "may_read", "verdict"),
    [
        ("/srv/m.gguf", True, Verdict.OK),
        ("/srv/m.gguf", False, Verdict.FAILED),
        ("/home/me/m.gguf", True, Verdict.FAILED),
        ("/root/m.gguf", True, Verdict.FAILED),
    ],
)
def test_a_service_has_to_see_and_read_its_model(path, may_read, verdict):
    files = [RequiredFile("model", Path(path), None)]
    assert check_readable("chat", files, lambda _: may_read).verdict is verdict


def test_a_model_that_may_not_be_read_is_opened_by_the_hint(short_dir):
    path = short_dir / "m.gguf"
    path.touch(mode=0o600)
    files = [RequiredFile("model", path, None)]

    def may_read(path):
        return bool(path.stat().st_mode & 0o004)

    finding = check_readable("chat", files, may_read)
    command, _, _ = finding.hint.removeprefix("sudo ").partition(";")
    subprocess.run(["sh", "-c", command], check=True)
    assert check_readable("chat", files, may_read).verdict is Verdict.OK


def test_without_root_reading_is_not_tried(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    assert service_may_read(tmp_path / "missing")


def test_the_daemon_of_a_user_s_service_is_the_user_s():
    assert service_uid(SYSTEM._replace(is_user=True)) == os.geteuid()


def test_a_service_is_checked_with_its_own_variables(monkeypatch):
    monkeypatch.setenv("INFERD_LOG_DIR", "/mine")
    monkeypatch.setenv("XDG_DATA_HOME", "/mine")
    state = WELL._replace(environment={"INFERD_MODELS": "/srv/models"})
    with environment_of(instance("b"), state):
        assert "INFERD_LOG_DIR" not in os.environ
        assert "XDG_DATA_HOME" not in os.environ
        assert os.environ["INFERD_CONFIG"] == "/etc/inferd/b.toml"
        assert os.environ["RUNTIME_DIRECTORY"] == "/run/inferd/b"
        assert os.environ["LOGS_DIRECTORY"] == "/var/log/inferd/b"
        assert os.environ["INFERD_MODELS"] == "/srv/models"
    assert os.environ["INFERD_LOG_DIR"] == "/mine"
    with environment_of(SYSTEM, None):
        assert "INFERD_CONFIG" not in os.environ
