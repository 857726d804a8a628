import json
import subprocess
import sys

import pytest

from inferd import __version__
from tests.daemon.harness import (
    PATIENCE_S,
    DaemonProcess,
    MakeDaemon,
    clean_environ,
    content_of,
    mock,
)

pytestmark = pytest.mark.slow

INFERD = [sys.executable, "-m", "inferd"]
TEXT = "Hello wörld!"


def inferd(*arguments: str, **environ: str):
    return subprocess.run(
        [*INFERD, *arguments],
        input="from stdin",
        capture_output=True,
        env={**clean_environ(), "HOME": "/nonexistent", **environ},
        timeout=PATIENCE_S,
        check=False,
        text=True,
    )


def findings_of(report):
    return {each["check"]: each for each in report["findings"]}


@pytest.fixture
def at(shared_daemon: DaemonProcess) -> list[str]:
    """The option that leads a command to the daemon."""
    return ["--directory", str(shared_daemon.directory)]


def test_version_is_one_line():
    result = inferd("--version")
    assert (result.returncode, result.stdout) == (0, f"inferd {__version__}\n")


def test_generate_streams_the_text_to_stdout_and_nothing_else(at):
    result = inferd("generate", "hello", *at)
    assert (result.returncode, result.stdout, result.stderr) == (
        0,
        "Hello wörld!\n",
        "",
    )


def test_generate_reads_its_prompt_from_stdin(at):
    result = inferd("generate", "-", "--max-tokens", "1", *at)
    assert (result.returncode, result.stdout) == (0, "Hel\n")


def test_generate_prints_frames_where_a_program_reads(at):
    result = inferd("generate", "hello", "--json", *at)
    frames = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 0
    assert [frame["type"] for frame in frames] == ["token"] * 4 + ["done"]
    assert content_of(frames) == frames[-1]["content"] == TEXT


def test_a_refused_request_is_an_error_of_the_command(at):
    result = inferd("generate", "hello", "--top-p", "0", *at)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "error: invalid_request: invalid request: top_p 0 not in (0, 1]\n"
    )


def test_generate_without_a_daemon_says_what_to_type(short_dir):
    result = inferd("generate", "hello", "--directory", str(short_dir))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(
        f"error: no daemon answers at {short_dir}/infer.sock"
    )
    assert result.stderr.endswith("\n\nhint: inferd serve\n")


def test_commands_find_the_daemon_by_the_configuration(shared_daemon: DaemonProcess):
    result = inferd("status", INFERD_CONFIG=str(shared_daemon.config_file))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"ready\nversion {__version__}")
    assert "backend mock: model mock" in result.stdout


def test_status_is_0_when_ready_and_a_program_can_read_it(at):
    result = inferd("status", "--json", *at)
    assert result.returncode == 0
    status = json.loads(result.stdout)
    assert status["status"] == "ready"
    assert status["version"] == status["daemon_version"] == __version__
    assert [each["backend"] for each in status["backends"]] == ["mock"]


def test_status_is_1_while_a_daemon_loads(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock(die_at_load=True, die_by="SIGSTOP")]})
    daemon.spawn()
    daemon.admin().until("loading_model")
    result = inferd("status", "--json", "--directory", str(daemon.directory))
    assert result.returncode == 1
    assert json.loads(result.stdout)["status"] == "loading_model"


def test_status_without_a_daemon_is_an_error_for_people_and_data_for_programs(
    short_dir,
):
    result = inferd("status", "--directory", str(short_dir))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.endswith("\n\nhint: inferd serve\n")
    result = inferd("status", "--json", "--directory", str(short_dir))
    assert (result.returncode, result.stderr) == (1, "")
    assert json.loads(result.stdout)["status"] == "unreachable"


def test_status_goes_on_where_somebody_watches(at):
    with subprocess.Popen(
        [*INFERD, "status", "--watch", *at], stdout=subprocess.PIPE, env=clean_environ()
    ) as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline() == b"capabilities mock\n"
        assert watch.stdout.readline() == b"ready\n"
        assert watch.poll() is None
        watch.kill()


def test_doctor_finds_nothing_wrong_with_a_good_configuration(
    shared_daemon: DaemonProcess,
):
    result = inferd("doctor", "--config", str(shared_daemon.config_file))
    assert result.returncode == 0
    assert "[ ok ] worker[mock]: mock; self-test passed" in result.stdout
    assert "[ ok ] sockets: admin.sock 0600, infer.sock 0660" in result.stdout
    assert "[ ok ] admin: the daemon is ready" in result.stdout
    assert "[FAIL]" not in result.stdout


def test_doctor_only_warns_where_no_daemon_runs(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()]})
    result = inferd("doctor", "--json", "--config", str(daemon.config_file))
    assert result.returncode == 0
    report = json.loads(result.stdout)
    assert report["passed"] is True
    assert report["version"] == __version__
    assert findings_of(report)["admin"]["verdict"] == "warning"
    assert findings_of(report)["worker[mock]"]["verdict"] == "ok"


def test_doctor_fails_where_a_model_is_missing(make_daemon: MakeDaemon):
    model = "/nonexistent/model.gguf"
    backend = {"name": "chat", "kind": "llamacpp", "model": model}
    daemon = make_daemon({"backend": [backend]})
    result = inferd("doctor", "--json", "--config", str(daemon.config_file))
    assert result.returncode == 1
    report = json.loads(result.stdout)
    assert report["passed"] is False
    assert findings_of(report)["model[chat]"]["verdict"] == "failed"
    assert model in findings_of(report)["model[chat]"]["detail"]
    assert findings_of(report)["worker[chat]"]["verdict"] == "skipped"


def test_doctor_fails_where_a_worker_dies(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock(die_at_load=True)]})
    result = inferd("doctor", "--config", str(daemon.config_file))
    assert result.returncode == 1
    assert "[FAIL] worker[mock]: killed by SIGKILL" in result.stdout


def test_serve_refuses_a_configuration_that_is_not_there():
    result = inferd("serve", "--config", "/nonexistent/config.toml")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: configuration /nonexistent/config.toml: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.model
def test_demo_asks_one_question_of_a_daemon_of_its_own():
    result = subprocess.run(
        [*INFERD, "demo"],
        capture_output=True,
        env=clean_environ(),
        timeout=120,
        check=False,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "Paris" in result.stdout
    words = result.stderr.splitlines()
    assert "demo: ready" in words
    assert words[-1] == "demo: the daemon has stopped"
