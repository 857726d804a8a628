import json
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from inferd import __version__
from inferd.client.sync import command as ask_admin
from inferd.wire.commands import Command
from tests.daemon.harness import (
    PATIENCE_S,
    DaemonProcess,
    MakeDaemon,
    clean_environ,
    content_of,
    eventually,
    mock,
    preloaded,
)

pytestmark = pytest.mark.slow

INFERD = [sys.executable, "-m", "inferd"]
TEXT = "Hello wörld!"


def inferd(*arguments: str, stdin: str = "from stdin", **environ: str):
    return subprocess.run(
        [*INFERD, *arguments],
        input=stdin,
        capture_output=True,
        env={**clean_environ(), "HOME": "/nonexistent", **environ},
        timeout=PATIENCE_S,
        check=False,
        text=True,
    )


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    """Start a command that goes on; nothing of what it prints is read ahead."""
    return subprocess.Popen(
        [*INFERD, *arguments],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environ(),
    )


def lines_of(text: str):
    return [json.loads(line) for line in text.splitlines()]


def findings_of(report):
    return {each["check"]: each for each in report["findings"]}


@pytest.fixture
def at(shared_daemon: DaemonProcess) -> list[str]:
    """The option that leads a command to the daemon."""
    return ["--directory", str(shared_daemon.directory)]


def test_version_is_one_line():
    result = inferd("--version")
    assert (result.returncode, result.stdout) == (0, f"inferd {__version__}\n")


def test_the_help_tells_what_exit_codes_mean():
    result = inferd("--help")
    assert result.returncode == 0
    words = " ".join(result.stdout.split())
    assert "exit codes: 0 done; 1 not ready" in words
    assert "2 an error, or an answer that was cancelled; 130 interrupted" in words


@pytest.mark.parametrize(
    "arguments", [[], ["sing"], ["rerank", "--top-n=x"], ["embed", "--dim=x"]]
)
def test_a_command_that_is_none_is_told_with_the_usage(arguments):
    result = inferd(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("usage: inferd ")


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
    assert result.stderr == ("error: invalid request: top_p 0 not in (0, 1]\n")


def test_generate_ends_at_a_stop_and_uses_a_seed(at):
    options = ["--stop", "wör", "--stop", "never", "--seed", "7", "--json"]
    result = inferd("generate", "hello", *options, *at)
    done = lines_of(result.stdout)[-1]
    assert result.returncode == 0
    assert (done["content"], done["stop_reason"]) == ("Hello ", "end")
    assert done["seed"] == 7


def test_generate_tells_the_way_to_the_answer_on_stderr(at):
    result = inferd("generate", "hello", "--progress", *at)
    assert (result.returncode, result.stdout) == (0, f"{TEXT}\n")
    assert "prefill, 0 of 0 tokens\n" in result.stderr


def test_generate_takes_a_prompt_that_looks_like_an_option(at):
    assert inferd("generate", *at, "--", "--hello").stdout == f"{TEXT}\n"


def test_generate_without_a_daemon_says_what_to_type(short_dir):
    result = inferd("generate", "hello", "--directory", str(short_dir))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(
        f"error: no daemon answers at {short_dir}/infer.sock"
    )
    assert result.stderr.endswith("\n\nhint: inferd serve\n")


# --- files that fail --------------------------------------------------------------------

COMMANDS = (["generate", "hi"], ["embed", "a"], ["rerank", "q", "a"], ["status"])


def redirected(how: str, *arguments: str):
    command = ["sh", "-c", f'exec "$@" {how}', "sh", *INFERD, *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        env=clean_environ(),
        timeout=PATIENCE_S,
        check=False,
        text=True,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("how", "why"), [(">/dev/full", "No space left on device"), (">&-", "closed")]
)
def test_a_stdout_that_takes_nothing_is_an_error_in_one_line(command, how, why, at):
    result = redirected(how, *command, *at)
    assert (result.returncode, result.stderr) == (2, f"error: stdout: {why}\n")


@pytest.mark.parametrize("command", ["generate", "embed"])
def test_a_stdin_that_was_closed_is_an_error_in_one_line(command, at):
    result = redirected("<&-", command, "-", *at)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "error: stdin: closed\n"


@pytest.mark.parametrize("how", ["2>/dev/full", "2>&-"])
def test_words_that_nobody_can_read_are_not_among_the_data(how, at):
    result = redirected(how, "generate", "hi", "--progress", *at)
    assert (result.returncode, result.stdout) == (0, f"{TEXT}\n")
    result = redirected(how, "generate", "hi", "--top-p", "0", *at)
    assert (result.returncode, result.stdout) == (2, "")


# --- cancel -----------------------------------------------------------------------------


@pytest.fixture
def slow_daemon(make_daemon: MakeDaemon) -> DaemonProcess:
    """A daemon whose answers last."""
    tokens = ["word "] * 1000
    return make_daemon({"backend": [mock(tokens=tokens, token_delay_ms=50)]}).start()


def test_an_answer_can_be_cancelled_and_is_an_error_then(slow_daemon: DaemonProcess):
    at = ["--directory", str(slow_daemon.directory)]
    with begin("generate", "hello", "--id", "long", *at) as command:
        assert command.stdout is not None
        command.stdout.read(1)
        result = inferd("cancel", "long", *at)
        stdout, stderr = command.communicate(timeout=PATIENCE_S)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == "cancelled 1\n"
    assert command.returncode == 2
    assert stdout.startswith(b"ord ")
    assert stdout.endswith(b"\n")
    assert stderr == b"error: the answer is not complete: cancelled\n"


def test_an_answer_is_cancelled_by_who_interrupts_it(slow_daemon: DaemonProcess):
    at = ["--directory", str(slow_daemon.directory)]
    with begin("generate", "hello", "--id", "long", *at) as command:
        assert command.stdout is not None
        command.stdout.read(1)
        command.send_signal(signal.SIGINT)
        _, stderr = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, stderr) == (130, b"")
    order = Command(command="requests")
    assert eventually(lambda: ask_admin(order, slow_daemon.directory).requests == [])


def test_cancelling_what_is_not_there_is_an_error(at):
    result = inferd("cancel", "nobody", *at)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == 'error: no request has the id "nobody"\n'


# --- embed and rerank -------------------------------------------------------------------


def test_texts_are_embedded_from_arguments_and_from_lines_alike(at):
    result = inferd("embed", "Grüße", "b", *at)
    assert (result.returncode, result.stderr) == (0, "")
    [first, second] = lines_of(result.stdout)
    assert (first["text"], len(first["embedding"])) == ("Grüße", 8)
    assert first["embedding"] != second["embedding"]
    piped = inferd("embed", *at, stdin='"Grüße"\n"b"\n')
    assert piped.stdout == result.stdout


def test_any_number_of_lines_is_embedded_in_order(at):
    stdin = "".join(
        f'{{"n": {number}, "text": "t{number}"}}\n' for number in range(200)
    )
    result = inferd("embed", "--dimensions", "2", *at, stdin=stdin)
    assert result.returncode == 0
    lines = lines_of(result.stdout)
    assert [line["n"] for line in lines] == list(range(200))
    assert {len(line["embedding"]) for line in lines} == {2}
    again = inferd("embed", "t199", "--dimensions", "2", *at)
    assert lines_of(again.stdout)[0]["embedding"] == lines[199]["embedding"]


def test_a_line_that_is_refused_ends_the_command_after_what_came_before(at):
    result = inferd("embed", "--batch", "1", *at, stdin='"a"\n""\n"c"\n')
    assert (result.returncode, len(lines_of(result.stdout))) == (2, 1)
    assert result.stderr == ("error: invalid request: line 2 must not be empty\n")


def test_embed_answers_while_lines_are_written_until_it_is_interrupted(at):
    with begin("embed", "--batch", "1", *at) as command:
        assert command.stdin is not None
        assert command.stdout is not None
        for text in (b"a", b"b"):
            command.stdin.write(b'"%s"\n' % text)
            assert json.loads(command.stdout.readline())["text"] == text.decode()
        command.send_signal(signal.SIGINT)
        _, stderr = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, stderr) == (130, b"")


def test_embed_ends_well_when_nobody_reads_on(at):
    with begin("embed", "--batch", "1", *at) as command:
        assert command.stdin is not None
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdin.write(b'"a"\n' * 3)
        command.stdout.readline()
        command.stdout.close()
        with suppress(BrokenPipeError):
            command.stdin.write(b'"a"\n' * 1000)
            command.stdin.close()
        assert command.wait(PATIENCE_S) == 0
        assert command.stderr.read() == b""


def test_documents_are_ranked_best_first(at):
    stdin = '"nothing"\n{"id": 7, "text": "the right words"}\n"the wrong words"\n'
    result = inferd("rerank", "right words", *at, "--top-n", "2", stdin=stdin)
    assert (result.returncode, result.stderr) == (0, "")
    [best, second] = lines_of(result.stdout)
    assert (best["index"], best["id"], best["text"]) == (1, 7, "the right words")
    assert second.keys() == {"index", "score", "text"}
    assert best["score"] > second["score"]


def test_a_daemon_that_embeds_nothing_is_told_from_none(make_daemon: MakeDaemon):
    config = {"listen": {"embed": False, "rerank": False}, "backend": [mock()]}
    at = ["--directory", str(make_daemon(config).start().directory)]
    for command, wanted in ((["embed"], "embeddings"), (["rerank", "q"], "reranking")):
        result = inferd(*command, "a", *at)
        assert (result.returncode, result.stdout) == (2, "")
        error, _, hint = result.stderr.splitlines()
        assert error == f"error: the daemon serves no {wanted}"
        assert hint == f"hint: set listen.{command[0]} = true in its configuration"


# --- status and doctor ------------------------------------------------------------------


def test_commands_find_the_daemon_by_the_configuration(shared_daemon: DaemonProcess):
    result = inferd("status", INFERD_CONFIG=str(shared_daemon.config_file))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"ready\nversion {__version__}")
    assert "backend mock: ready, model mock" in result.stdout
    assert result.stdout.endswith("text v2 tools thinking embed rerank\n")


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


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return preloaded().run([*INFERD, "doctor", *arguments], clean_environ())


def test_doctor_finds_nothing_wrong_with_a_good_configuration(
    shared_daemon: DaemonProcess,
):
    result = inferd("doctor", "--config", str(shared_daemon.config_file))
    assert result.returncode == 0
    assert "[ ok ] worker[mock]: mock; self-test passed" in result.stdout
    assert "[ ok ] sockets: admin.sock 0600, infer.sock 0660, infer.v2" in result.stdout
    assert "[ ok ] admin: the daemon is ready" in result.stdout
    assert "[FAIL]" not in result.stdout


def test_doctor_only_warns_where_no_daemon_runs(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()]})
    result = doctor("--json", "--config", str(daemon.config_file))
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
    result = doctor("--json", "--config", str(daemon.config_file))
    assert result.returncode == 1
    report = json.loads(result.stdout)
    assert report["passed"] is False
    assert findings_of(report)["model[chat]"]["verdict"] == "failed"
    assert model in findings_of(report)["model[chat]"]["detail"]
    assert findings_of(report)["worker[chat]"]["verdict"] == "skipped"


def test_doctor_knows_an_admin_socket_that_others_may_use(make_daemon: MakeDaemon):
    access = {"admin": {"uids": [12345]}}
    daemon = make_daemon({"backend": [mock()], "access": access}).start()
    result = doctor("--config", str(daemon.config_file))
    assert "[ ok ] sockets: admin.sock 0660" in result.stdout


def test_doctor_fails_where_a_worker_dies(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock(die_at_load=True)]})
    result = doctor("--config", str(daemon.config_file))
    assert result.returncode == 1
    assert "[FAIL] worker[mock]: killed by SIGKILL" in result.stdout


def test_serve_refuses_a_configuration_that_is_not_there():
    result = inferd("serve", "--config", "/nonexistent/config.toml")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: configuration /nonexistent/config.toml: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.long
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
