import json

import pytest

from inferd import __version__
from tests.fakes.listener import Dialogue, failure, listening, says, status

ABLE = status(
    "capabilities",
    backend="chat",
    v2=False,
    vision=True,
    audio=False,
    tools=False,
    thinking=True,
    embed=False,
    accelerator="cpu",
    gpu_layers=0,
    wire_version=1,
    n_ctx=512,
    model="m",
    daemon_version="9.9",
)


def ask(inferd, directory, *dialogue, options=()):
    follow: Dialogue = dialogue[0] if dialogue else says(ABLE, status("ready"))
    with listening(directory / "admin.sock", follow):
        return inferd("status", "--directory", directory, *options)


def test_a_ready_daemon_is_printed_as_text(inferd, short_dir):
    code, stdout, stderr = ask(inferd, short_dir)
    assert (code, stderr) == (0, "")
    assert stdout.splitlines() == [
        "ready",
        f"version 9.9, this command {__version__}",
        "backend chat: model m, context 512, cpu, gpu_layers 0, text vision thinking",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"device_name": "Card"}, "cuda (Card)"),
        (
            {
                "device_name": "Card",
                "vram_total_bytes": 3 << 20,
                "vram_free_bytes": 1 << 20,
            },
            "cuda (Card, 1 of 3 MiB free after loading)",
        ),
    ],
)
def test_an_accelerator_is_printed_with_its_memory(inferd, short_dir, fields, words):
    able = ABLE | {"accelerator": "cuda", "gpu_layers": 7} | fields
    _, stdout, _ = ask(inferd, short_dir, says(able, status("ready")))
    assert f"context 512, {words}, gpu_layers 7," in stdout


@pytest.mark.parametrize(
    ("able", "words"),
    [
        ({"generate": False, "vision": False, "thinking": False}, ""),
        ({"generate": False, "vision": False, "rerank": True}, " thinking rerank"),
        ({"transcribe": True}, " text vision thinking transcribe"),
        ({"generate": True, "embed": True}, " text vision thinking embed"),
        ({"news": True}, " text vision thinking"),
    ],
)
def test_a_backend_is_printed_with_its_capabilities(inferd, short_dir, able, words):
    _, stdout, _ = ask(inferd, short_dir, says(ABLE | able, status("ready")))
    assert stdout.splitlines()[2].partition("gpu_layers 0,")[2].rstrip() == words


def test_a_model_that_was_chosen_is_printed_with_the_reason(inferd, short_dir):
    able = ABLE | {"model_choice": "small, 2 of 2 in its ladder: \x1b[31m"}
    _, stdout, _ = ask(inferd, short_dir, says(able, status("ready")))
    assert stdout.splitlines()[3] == (
        r"  chosen at the start: small, 2 of 2 in its ladder: \x1b[31m"
    )


def test_a_ready_daemon_is_printed_as_json(inferd, short_dir):
    code, stdout, _ = ask(inferd, short_dir, options=["--json"])
    assert code == 0
    assert json.loads(stdout) == {
        "status": "ready",
        "version": __version__,
        "daemon_version": "9.9",
        "phase": None,
        "reason": None,
        "backends": [ABLE],
    }


@pytest.mark.parametrize("word", ["starting", "loading_model", "draining", "news"])
def test_a_daemon_that_is_not_ready_is_another_exit_code(inferd, short_dir, word):
    code, stdout, _ = ask(inferd, short_dir, says(status(word)))
    assert (code, stdout.splitlines()[0]) == (1, word)


def test_a_restart_is_printed_with_its_reason(inferd, short_dir):
    restarting = status("restarting", phase="backoff", reason="killed by SIGSEGV")
    code, stdout, _ = ask(inferd, short_dir, says(ABLE, restarting))
    assert (code, stdout.splitlines()[0]) == (1, "restarting backoff killed by SIGSEGV")


def test_a_missing_daemon_is_an_error_with_a_hint(inferd, short_dir):
    code, stdout, stderr = inferd("status", "--directory", short_dir)
    assert (code, stdout) == (2, "")
    assert stderr.endswith("\n\nhint: inferd serve\n")


def test_a_missing_daemon_is_a_status_in_json(inferd, short_dir):
    code, stdout, stderr = inferd("status", "--directory", short_dir, "--json")
    assert (code, stderr) == (1, "")
    assert json.loads(stdout)["status"] == "unreachable"


def test_a_silent_daemon_is_an_error(inferd, short_dir):
    code, _, stderr = ask(inferd, short_dir, says())
    assert code == 2
    assert stderr.startswith("error: ")


def test_a_daemon_that_does_not_answer_in_time_is_not_told_to_be_started(
    inferd, monkeypatch
):
    def no_status(*_, **__):
        raise TimeoutError("timed out")

    monkeypatch.setattr("inferd.cli.commands.status.watch_status", no_status)
    assert inferd("status") == (
        2,
        "",
        "error: the daemon has sent no status within 5 s\n\nhint: inferd doctor\n",
    )


def test_a_full_admin_socket_is_an_error(inferd, short_dir):
    refusal = says(failure("queue_full", "too many connections", ""))
    code, _, stderr = ask(inferd, short_dir, refusal)
    assert code == 2
    assert stderr.startswith("error: ")


def test_watching_prints_a_line_an_event_to_the_end(inferd, short_dir):
    loading = status("loading_model", phase="mmap", backend="chat", path="/m.gguf")
    dialogue = says(loading, status("ready"), status("draining"))
    code, stdout, _ = ask(inferd, short_dir, dialogue, options=["--watch"])
    assert code == 1
    assert stdout.splitlines() == [
        "loading_model mmap chat /m.gguf",
        "ready",
        "draining",
    ]


def test_watching_prints_frames_as_they_came(inferd, short_dir):
    options = ["--watch", "--json"]
    _, stdout, _ = ask(inferd, short_dir, options=options)
    assert [json.loads(line) for line in stdout.splitlines()] == [ABLE, status("ready")]


def test_a_backend_is_printed_with_its_aliases_and_state(inferd, short_dir):
    named = ABLE | {"aliases": ["fast", "gpt-4o"], "state": "loading"}
    _, stdout, _ = ask(inferd, short_dir, says(named, status("ready")))
    assert stdout.splitlines()[2].startswith(
        "backend chat (also fast, gpt-4o): loading, model m, context 512, "
    )
    _, stdout, _ = ask(
        inferd, short_dir, says(named | {"aliases": []}, status("ready"))
    )
    assert stdout.splitlines()[2].startswith("backend chat: loading, model m, ")


def test_of_a_model_that_has_not_been_read_only_that_is_printed(inferd, short_dir):
    unread = ABLE | {"backend": "team/x:q4", "state": "unloaded", "is_unread": True}
    _, stdout, _ = ask(inferd, short_dir, says(unread, status("ready")))
    assert stdout.splitlines()[2:] == [
        "backend team/x:q4: unloaded, a model of the store that no request has named yet"
    ]
