import json
import os

import pytest

from inferd import __version__
from inferd.cli.commands.doctor import MARKS
from inferd.doctor.catalogue import all_checks, services_checks
from inferd.doctor.check import Check, Verdict, failed, ok, warning
from inferd.doctor.memory import Forecast
from inferd.memory.available import GroupLimit
from inferd.memory.plan import plan_memory
from inferd.service.units import SYSTEM, UnitState, instance
from tests.fakes.memory_coordinator import DEMAND

CHECKS = [
    Check("well", lambda: ok("as it should be")),
    Check("odd", lambda: warning("somebody should know", "look at it")),
    Check("broken", lambda: failed("it is not there", "make setup")),
    Check("idle", lambda: ok("never asked"), ["broken"]),
]


@pytest.fixture
def checks(monkeypatch):
    """Put these in place of the machine's."""

    def use(*checks: Check) -> None:
        monkeypatch.setattr(
            "inferd.cli.commands.doctor.all_checks", lambda *_, **__: iter(checks)
        )
        monkeypatch.setattr("inferd.cli.commands.doctor.services_checks", list)

    return use


def names(path=None) -> list[str]:
    return [check.name for check in all_checks(path)]


def test_each_finding_is_a_line_and_a_hint_is_another(inferd, checks):
    checks(*CHECKS)
    code, stdout, stderr = inferd("doctor")
    assert (code, stderr) == (1, "")
    assert stdout.splitlines() == [
        "[ ok ] well: as it should be",
        "[warn] odd: somebody should know",
        "       hint: look at it",
        "[FAIL] broken: it is not there",
        "       hint: make setup",
        "[skip] idle: needs broken",
    ]


def test_a_report_is_what_a_program_reads(inferd, checks):
    checks(*CHECKS)
    code, stdout, _ = inferd("doctor", "--json")
    report = json.loads(stdout)
    assert code == 1
    assert (report["version"], report["passed"]) == (__version__, False)
    assert report["findings"][1] == {
        "check": "odd",
        "verdict": "warning",
        "detail": "somebody should know",
        "hint": "look at it",
    }
    assert report["findings"][3]["verdict"] == "skipped"


def test_a_warning_is_no_failure(inferd, checks):
    checks(*CHECKS[:2])
    assert inferd("doctor").code == 0
    assert json.loads(inferd("doctor", "--json").stdout)["passed"] is True


def test_every_verdict_has_its_mark():
    assert set(MARKS) == set(Verdict)
    assert len({len(mark) for mark in MARKS.values()}) == 1


def test_a_configuration_s_backends_are_checked_by_name(inferd, short_dir):
    config = short_dir / "config.toml"
    config.write_text('[[backend]]\nname = "a"\nkind = "mock"\n')
    assert names(config) == [
        "python",
        "packages",
        "cpu",
        "clock",
        "config",
        "box",
        "limits",
        "driver",
        "worker[a]",
        "store",
        "disk",
        "log-directory",
        "runtime-directory",
        "lock",
        "sockets",
        "admin",
    ]


def test_a_model_is_checked_before_its_worker(inferd, short_dir):
    config = short_dir / "config.toml"
    config.write_text('[[backend]]\nname = "a"\nkind = "llamacpp"\nmodel = "/m"\n')
    needs = {check.name: check.needs for check in all_checks(config)}
    assert needs["memory[a]"] == ["packages", "model[a]"]
    assert needs["worker[a]"] == ["packages", "model[a]", "memory[a]"]


def test_memory_is_forecast_once_for_all_backends(inferd, monkeypatch, short_dir):
    asked: list[list[str]] = []

    def forecast(workers, budget, _limits):
        asked.append([each.name for _, each in workers])
        demands = {"a": DEMAND, "b": DEMAND}
        return Forecast(demands, plan=plan_memory(demands, budget))

    monkeypatch.setattr("inferd.doctor.catalogue.forecast", forecast)
    names = "".join(
        f'[[backend]]\nname = "{name}"\nkind = "llamacpp"\nmodel = "/m"\n'
        for name in "ab"
    )
    config = short_dir / "config.toml"
    config.write_text(f'{names}[listen]\ndirectory = "{short_dir}"\n')
    checks = [each for each in all_checks(config) if each.name.startswith("memory")]
    verdicts = [check.run().verdict for check in checks]
    assert (verdicts, asked) == ([Verdict.OK] * 2, [["a", "b"]])


def test_a_model_that_was_not_brought_is_a_finding(inferd, short_dir):
    [model] = [check for check in all_checks(None) if check.name.startswith("model")]
    finding = model.run()
    assert finding.verdict is Verdict.FAILED
    assert "inferd model pull embedded:chat" in finding.detail
    assert "worker[chat]" not in names()


def test_a_broken_configuration_is_a_finding_and_ends_the_list(inferd, short_dir):
    config = short_dir / "config.toml"
    config.write_text("nonsense = 1\n")
    *_, last = all_checks(config)
    assert last.name == "config"
    finding = last.run()
    assert finding.verdict is Verdict.FAILED
    assert "nonsense" in finding.detail


def test_a_group_that_is_not_there_is_a_finding_as_the_daemon_does_not_start(
    inferd, short_dir
):
    config = short_dir / "config.toml"
    config.write_text(
        '[listen]\ngroup = "nobody-has-this"\n[[backend]]\nname = "a"\nkind = "mock"\n'
    )
    found = {check.name: check for check in all_checks(config)}
    assert "worker[a]" in found
    finding = found["config"].run()
    assert finding.verdict is Verdict.FAILED
    assert finding.detail == "listen.group: group not found: 'nobody-has-this'"
    assert finding.hint == f"correct {config}"


def test_a_configuration_that_is_not_there_has_a_hint_that_makes_one(inferd, short_dir):
    config = short_dir / "config.toml"
    *_, last = all_checks(config)
    assert last.run().hint == f"inferd config init --output {config}"


def test_memory_that_is_short_is_told_with_what_bounds_it(
    inferd, monkeypatch, short_dir
):
    def forecast(*_):
        return Forecast({"a": DEMAND}, refusal="it needs more")

    monkeypatch.setattr("inferd.doctor.catalogue.forecast", forecast)
    monkeypatch.setattr("inferd.doctor.catalogue.available_bytes", lambda: 2**30)
    config = short_dir / "config.toml"
    config.write_text(
        '[[backend]]\nname = "a"\nkind = "llamacpp"\nmodel = "/m"\n'
        f'[listen]\ndirectory = "{short_dir}"\n'
    )
    for limit, source in (
        (None, "1024 MiB are available"),
        (GroupLimit("/a/b", 2**29), "the control group /a/b leaves 512 MiB"),
    ):
        monkeypatch.setattr(
            "inferd.doctor.catalogue.group_limit", lambda limit=limit: limit
        )
        checks = {each.name: each for each in all_checks(config)}
        finding = checks["memory[a]"].run()
        assert finding.verdict is Verdict.FAILED
        assert finding.detail.endswith(
            f"{source}, of which [memory] reserve keeps 512 MiB"
        )


def test_a_worker_that_died_is_no_matter_of_memory(inferd, monkeypatch, short_dir):
    def forecast(*_):
        return Forecast(failures={"a": "killed by SIGILL"}, refusal="it needs more")

    monkeypatch.setattr("inferd.doctor.catalogue.forecast", forecast)
    config = short_dir / "config.toml"
    config.write_text('[[backend]]\nname = "a"\nkind = "llamacpp"\nmodel = "/m"\n')
    checks = {each.name: each for each in all_checks(config)}
    assert checks["memory[a]"].run().detail == "killed by SIGILL"


def test_a_service_is_checked_where_it_is(inferd, short_dir, monkeypatch):
    monkeypatch.setattr("inferd.doctor.catalogue.unit_state", lambda _: None)
    monkeypatch.setattr("inferd.doctor.catalogue.unit_problems", lambda _: [])
    config = short_dir / "config.toml"
    config.write_text('[[backend]]\nname = "a"\nkind = "llamacpp"\nmodel = "/m"\n')
    found = {each.name: each for each in all_checks(config, service=SYSTEM)}
    assert {"accounts", "unit", "readable[a]"} <= found.keys()
    assert found["readable[a]"].needs == ["model[a]"]
    assert "readable[a]" in found["worker[a]"].needs


def test_an_instance_without_a_configuration_has_a_hint_that_makes_one(
    inferd, monkeypatch, short_dir
):
    missing = short_dir / "b.toml"
    service = SYSTEM._replace(configuration=missing)
    monkeypatch.setattr("inferd.doctor.catalogue.unit_state", lambda _: None)
    monkeypatch.setattr("inferd.doctor.catalogue.unit_problems", lambda _: [])
    *_, config = all_checks(missing, service=service)
    assert config.run().hint == f"sudo install -D --mode=0644 /dev/null {missing}"


def test_a_name_that_no_instance_has_is_an_error(inferd):
    code, _, stderr = inferd("doctor", "--instance", "../x")
    assert code == 2
    assert "is not the name of an instance" in stderr


def test_services_are_told_in_short_with_the_command_that_says_more(monkeypatch):
    state = UnitState(
        *(
            "loaded",
            "failed",
            "failed",
            "exit-code",
            "2",
            "did not start: x",
            0,
            "",
            (),
        ),
        needs_reload=False,
        is_listening=True,
    )
    services = [SYSTEM, instance("b")]
    monkeypatch.setattr("inferd.doctor.catalogue.installed_services", lambda: services)
    monkeypatch.setattr("inferd.doctor.catalogue.unit_state", lambda _: state)
    monkeypatch.setattr("inferd.doctor.catalogue.unit_problems", lambda _: [])
    findings = {check.name: check.run() for check in services_checks()}
    assert findings["service[inferd]"].detail == (
        "inferd.service has failed: did not start: x"
    )
    assert findings["service[inferd]"].hint == "sudo inferd doctor --system"
    assert findings["service[inferd@b]"].hint == "sudo inferd doctor --instance b"


@pytest.mark.parametrize(("is_listening", "is_told"), [(True, True), (False, False)])
def test_a_user_s_own_service_is_told_if_it_is_used(
    monkeypatch, short_dir, is_listening, is_told
):
    state = UnitState(
        *("loaded", "inactive", "dead", "success", "0", "", 0, "", ()),
        needs_reload=False,
        is_listening=is_listening,
    )
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    monkeypatch.setattr("inferd.doctor.catalogue.installed_services", list)
    monkeypatch.setattr("inferd.doctor.catalogue.unit_state", lambda _: state)
    assert [check.name for check in services_checks()] == ["service[user]"] * is_told


def test_no_worker_that_is_tried_gets_a_key_in_its_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("FAR_KEY", "sk-1")
    config = tmp_path / "config.toml"
    config.write_text(
        "[[backend]]\nname = 'near'\nkind = 'mock'\n[[backend]]\nname = 'far'\n"
        "kind = 'openai'\nbase_url = 'unix:/a'\nmodel = 'm'\napi_key_env = 'FAR_KEY'\n"
    )
    for check in all_checks(config):
        if check.name.startswith("worker"):
            assert "FAR_KEY" not in os.environ
            break
    else:
        pytest.fail("no worker was tried")


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ("base_url = 'http://example.org'", "plain http is for this machine alone"),
        ("base_url = 'unix:/a'", "api_key_env = NO_SUCH_KEY: no such variable"),
    ],
)
def test_a_fault_of_a_remote_has_no_hint_at_models_and_libraries(
    tmp_path, fields, detail
):
    config = tmp_path / "config.toml"
    config.write_text(
        "[[backend]]\nname = 'far'\nkind = 'openai'\nmodel = 'm'\n"
        f"api_key_env = 'NO_SUCH_KEY'\n{fields}\n"
    )
    [finding] = [
        check.run() for check in all_checks(config) if check.name.endswith("[far]")
    ]
    assert detail in finding.detail
    assert finding.hint == ""
