import argparse
import errno
import io
import json
import sys
from typing import Any

import pytest
from PIL import Image

from inferd.cli.commands.generate import SAMPLE_NOTE, add_arguments, make_request
from inferd.client.media.errors import MissingExtraError
from inferd.models.embedded import CHAT_DEFAULTS
from inferd.wire.requests import ChatMessage, GenerateRequest
from tests.fakes.hearing import receive
from tests.fakes.listener import (
    answers,
    done,
    failure,
    listening,
    read_line,
    says,
    status,
    token,
)
from tests.fakes.recordings import wav
from tests.fakes.streams import to_line


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


# --- the request ------------------------------------------------------------------------


def test_options_that_are_not_given_are_left_to_the_daemon():
    request = make_request("hello", parse("hello"))
    messages = [ChatMessage("user", "hello")]
    assert request == GenerateRequest(id="cli", messages=messages)


def test_every_option_reaches_the_request():
    options = "--temperature 0 --top-p 0.5 --top-k 3 --max-tokens 7 --seed 9 --id x"
    options += " --model gpt-4o"
    stops = ["--stop", "\n", "--stop", "the end"]
    arguments = parse("-", *options.split(), *stops, "--system", "Be brief.")
    assert make_request("from stdin", arguments) == GenerateRequest(
        id="x",
        model="gpt-4o",
        messages=[
            ChatMessage("system", "Be brief."),
            ChatMessage("user", "from stdin"),
        ],
        temperature=0,
        top_p=0.5,
        top_k=3,
        max_tokens=7,
        seed=9,
        stop=["\n", "the end"],
    )


def test_progress_is_requested_only_if_wanted():
    assert make_request("hello", parse("hello", "--progress")).progress
    assert make_request("hello", parse("hello")).progress is None


@pytest.mark.parametrize(
    "arguments",
    [["a", "b"], ["a", "--max-tokens", "many"], ["a", "--temperature", "hot"]],
)
def test_what_cannot_be_meant_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(*arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--top-k", "--max-tokens", "--seed"])
def test_a_number_that_no_request_can_carry_is_refused_with_its_option(option, capsys):
    with pytest.raises(SystemExit) as caught:
        parse("a", option, "-1")
    assert caught.value.code == 2
    words = f"argument {option}: -1 not in [0, 4294967295]"
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--temperature", "--top-p"])
def test_a_number_that_json_has_not_is_refused_with_its_option(option, capsys):
    with pytest.raises(SystemExit) as caught:
        parse("a", option, "nan")
    assert caught.value.code == 2
    assert f"argument {option}: nan is not finite" in capsys.readouterr().err


# --- the command ------------------------------------------------------------------------


def ask(inferd, directory, *dialogue, options=()):
    answer = [
        token("Hel", "cli"),
        token("lo\x1b", "cli"),
        done("Hello\x1b", "cli"),
    ]
    path = directory / "infer.sock"
    with listening(path, *(dialogue or [answers(answer)])):
        return inferd("generate", "hi", "--directory", directory, *options)


def test_the_text_is_streamed_as_it_is_where_no_terminal_is(inferd, short_dir):
    assert ask(inferd, short_dir) == (0, "Hello\x1b\n", "")


def test_frames_are_printed_as_lines(inferd, short_dir):
    code, stdout, stderr = ask(inferd, short_dir, options=["--json"])
    frames = [json.loads(line) for line in stdout.splitlines()]
    assert (code, stderr) == (0, "")
    assert [frame["type"] for frame in frames] == ["token", "token", "done"]


def test_a_prompt_that_is_no_text_is_an_error(inferd, short_dir, monkeypatch):
    piped = io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", piped)
    outcome = inferd("generate", "-", "--directory", short_dir)
    assert outcome == (2, "", "error: stdin is not UTF-8\n")


class Broken(io.StringIO):
    def read(self, _=-1):
        raise OSError(errno.EIO, "Input/output error")


def test_a_prompt_that_cannot_be_read_is_an_error(inferd, short_dir, monkeypatch):
    monkeypatch.setattr("sys.stdin", Broken())
    outcome = inferd("generate", "-", "--directory", short_dir)
    assert outcome == (2, "", "error: Input/output error\n")


def test_a_dash_reads_the_prompt_from_stdin(inferd, short_dir, monkeypatch):
    asked: list[dict[str, list[dict[str, str]]]] = []

    def listen(sock):
        asked.append(json.loads(read_line(sock)))
        says(done("", "cli"))(sock)

    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines"))
    with listening(short_dir / "infer.sock", listen):
        assert inferd("generate", "-", "--directory", short_dir).code == 0
    assert asked[0]["messages"][0]["content"] == "two\nlines"


def test_a_prompt_is_read_from_a_pipe_but_not_from_a_terminal(
    inferd, short_dir, monkeypatch
):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    code, _, told = inferd("generate", "--directory", short_dir)
    assert (code, told.splitlines()[0]) == (2, "error: no prompt given")
    code, _, told = inferd("generate", "--directory", short_dir, "hi", "--jobs", "2")
    assert (code, told) == (2, "error: --output, --resume and --jobs need --jsonl\n")


def test_a_refusal_is_one_line(inferd, short_dir):
    refusal = answers([failure("queue_full", "queue full", "cli")])
    outcome = ask(inferd, short_dir, refusal)
    assert outcome == (2, "", "error: queue_full: queue full\n")


def test_a_model_that_is_not_there_is_told_with_where_names_are(inferd, short_dir):
    refusal = failure("model_not_found", 'model "x" is not served here; …', "cli")
    code, _, stderr = ask(
        inferd, short_dir, answers([refusal]), options=["--model", "x"]
    )
    assert (code, stderr.splitlines()) == (
        2,
        [
            'error: model_not_found: model "x" is not served here; …',
            "",
            "hint: inferd model list",
        ],
    )


def test_a_daemon_that_ends_during_an_answer_is_an_error(inferd, short_dir):
    outcome = ask(inferd, short_dir, answers([token("Hel", "cli")]))
    assert outcome == (2, "Hel", "error: the daemon closed the connection\n")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_daemon_that_takes_nobody_is_an_error(inferd, short_dir, options):
    refusal = says(failure("queue_full", "too many connections", ""))
    outcome = ask(inferd, short_dir, refusal, options=options)
    assert outcome == (2, "", "error: queue_full: too many connections\n")


@pytest.mark.parametrize("reason", ["cancelled", "error"])
def test_an_answer_that_was_cut_short_is_printed_and_an_error(
    inferd, short_dir, reason
):
    answer = answers([token("Hel", "cli"), done("Hel", "cli", stop_reason=reason)])
    code, stdout, stderr = ask(inferd, short_dir, answer)
    assert (code, stdout) == (2, "Hel\n")
    assert stderr == f"error: the answer is not complete: {reason}\n"


def test_a_cancelled_answer_is_an_error_for_programs_as_well(inferd, short_dir):
    answer = answers([done("", "cli", stop_reason="cancelled")])
    code, stdout, _ = ask(inferd, short_dir, answer, options=["--json"])
    assert (code, json.loads(stdout)["stop_reason"]) == (2, "cancelled")


@pytest.mark.parametrize("reason", ["end", "length", "news"])
def test_any_other_end_is_well(inferd, short_dir, reason):
    answer = answers([done("", "cli", stop_reason=reason)])
    assert ask(inferd, short_dir, answer) == (0, "\n", "")


PROGRESS = [
    {"type": "status", "id": "cli", "status": "queued", "position": 2},
    {"type": "status", "id": "cli", "status": "prefill", "processed": 5, "total": 9},
]


def test_progress_is_printed_on_stderr(inferd, short_dir):
    answer = answers([*PROGRESS, token("Hel", "cli"), done("Hel", "cli")])
    code, stdout, stderr = ask(inferd, short_dir, answer, options=["--progress"])
    assert (code, stdout) == (0, "Hel\n")
    assert stderr == "queued, position 2\nprefill, 5 of 9 tokens\n"


def test_progress_is_frames_where_a_program_reads(inferd, short_dir):
    answer = answers([*PROGRESS, done("", "cli")])
    _, stdout, stderr = ask(inferd, short_dir, answer, options=["--json"])
    assert [json.loads(line) for line in stdout.splitlines()][:2] == PROGRESS
    assert stderr == ""


def test_the_configured_directory_is_where_a_daemon_is_looked_for(inferd, short_dir):
    config = short_dir / "inferd" / "config.toml"
    config.parent.mkdir()
    config.write_text(f'[listen]\ndirectory = "{short_dir}"\n')
    with listening(short_dir / "infer.sock", answers([done("", "cli")])):
        assert inferd("generate", "hi").code == 0


def test_a_broken_configuration_is_one_line(inferd, short_dir):
    config = short_dir / "inferd" / "config.toml"
    config.parent.mkdir()
    config.write_text("nonsense = 1\n")
    code, _, stderr = inferd("generate", "hi")
    assert code == 2
    assert stderr.count("\n") == 1
    assert "nonsense" in stderr


# --- counting ---------------------------------------------------------------------------


def test_a_count_asks_for_no_answer():
    assert make_request("hello", parse("hello", "--count")).max_tokens == 0
    assert make_request("a", parse("a", "--count", "--max-tokens", "9")).max_tokens == 0


def test_a_count_is_a_number_and_nothing_else(inferd, short_dir):
    outcome = ask(inferd, short_dir, answers([done("", "cli")]), options=["--count"])
    assert outcome == (0, "3\n", "")


def test_a_prompt_that_does_not_fit_is_counted_and_refused(inferd, short_dir):
    refusal = failure("invalid_request", "too long", "cli")
    numbers = {"prompt_tokens": 9000, "n_ctx": 8192, "tokens_over": 809}
    dialogue = answers([{**refusal, **numbers}])
    outcome = ask(inferd, short_dir, dialogue, options=["--count"])
    assert outcome == (2, "9000\n", "error: invalid_request: too long\n")


def test_a_count_that_fails_is_no_number(inferd, short_dir):
    refusal = answers([failure("queue_full", "queue full", "cli")])
    outcome = ask(inferd, short_dir, refusal, options=["--count"])
    assert outcome == (2, "", "error: queue_full: queue full\n")


def test_a_count_for_programs_is_the_frame(inferd, short_dir):
    dialogue = answers([done("", "cli")])
    code, stdout, _ = ask(inferd, short_dir, dialogue, options=["--count", "--json"])
    assert (code, json.loads(stdout)["usage"]["prompt_tokens"]) == (0, 3)


# --- pictures and sound -----------------------------------------------------------------


@pytest.fixture
def files(short_dir):
    """A picture of one red pixel, and a second of sound."""
    Image.new("RGB", (1, 1), "red").save(short_dir / "a.png")
    (short_dir / "a.wav").write_bytes(wav([0.5] * 16_000))
    return short_dir


def look(came, *frames):
    """Keep what comes, and answer."""

    def follow(sock):
        came.extend(receive(sock))
        says(*frames)(sock)

    return follow


def delta(text):
    return {"type": "frame", "id": "cli", "block": {"type": "text", "delta": text}}


def done_blocks(**fields):
    usage = {"input_tokens": 300, "output_tokens": 2}
    return done("", "cli", usage=usage, **{"stop_reason": "end_turn", **fields})


def ask_about(inferd, files, came, *options, frames=()):
    answer = frames or [delta("Red."), done_blocks()]
    with listening(files / "infer.v2.sock", look(came, *answer)):
        return inferd("generate", "What is it?", "--directory", files, *options)


def test_files_come_before_the_prompt_in_their_order(inferd, files):
    came: list[Any] = []
    media = ["--audio", files / "a.wav", "--image", files / "a.png"]
    outcome = ask_about(inferd, files, came, *media, "--system", "Be brief.")
    assert outcome == (0, "Red.\n", "")
    request, (sound, picture) = came
    assert (len(sound), picture) == (64_000, b"\xff\0\0")
    assert [each["kind"] for each in request["attachments"]] == ["audio", "image"]
    system, user = request["messages"]
    assert system["content"] == [{"type": "text", "text": "Be brief."}]
    assert [each["type"] for each in user["content"]] == ["audio", "image", "text"]


def test_options_reach_a_request_with_pictures(inferd, files):
    came: list[Any] = []
    numbers = "--temperature 0 --top-p 0.5 --top-k 3 --max-tokens 7 --seed 9"
    options = [*numbers.split(), "--stop", "x", "--progress", "--model", "m"]
    ask_about(inferd, files, came, "--image", files / "a.png", *options)
    request = came[0]
    assert {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 3,
        "max_tokens": 7,
        "seed": 9,
        "stop": ["x"],
        "progress": True,
        "model": "m",
    }.items() <= request.items()


def test_the_tokens_of_a_prompt_with_a_picture_are_counted(inferd, files):
    came: list[Any] = []
    frames = [done_blocks()]
    options = ["--image", files / "a.png", "--count"]
    assert ask_about(inferd, files, came, *options, frames=frames).stdout == "300\n"
    assert came[0]["max_tokens"] == 0


def test_an_answer_about_a_picture_that_was_cut_short_is_an_error(inferd, files):
    frames = [delta("Re"), done_blocks(stop_reason="cancelled")]
    options = ["--image", files / "a.png"]
    code, stdout, stderr = ask_about(inferd, files, [], *options, frames=frames)
    assert (code, stdout) == (2, "Re\n")
    assert stderr == "error: the answer is not complete: cancelled\n"


@pytest.mark.parametrize("option", ["--image", "--audio"])
def test_a_file_that_cannot_be_decoded_is_an_error_before_a_request(
    inferd, files, option
):
    bad = files / "bad"
    bad.write_text("nonsense")
    code, stdout, stderr = inferd("generate", "hi", option, bad)
    assert (code, stdout) == (2, "")
    assert stderr.startswith((f"error: {bad}: not an image", f"error: {bad}: no audio"))


def test_without_the_library_it_is_said_what_to_install(inferd, files, monkeypatch):
    monkeypatch.delitem(sys.modules, "inferd.client.media.pictures", raising=False)
    monkeypatch.setitem(sys.modules, "PIL", None)
    words = str(MissingExtraError("PIL"))
    outcome = inferd("generate", "hi", "--image", files / "a.png")
    assert outcome == (2, "", f"error: {words}\n")


# --- the embedded chat model ------------------------------------------------------------


def sample(model: str = CHAT_DEFAULTS.model, *, generate: bool = True) -> object:
    return status("capabilities", model=model, generate=generate, daemon_version="1")


def request_to(inferd, directory, models, *options):
    """Ask a daemon that serves these models; give the request, and what is on stderr."""
    requests = []

    def answer(sock):
        requests.append(json.loads(read_line(sock)))
        sock.sendall(b"".join(map(to_line, [token("a", "cli"), done("a", "cli")])))

    with (
        listening(directory / "admin.sock", says(*models, status("ready"))),
        listening(directory / "infer.sock", answer),
    ):
        _, _, stderr = inferd("generate", "hi", "--directory", directory, *options)
    return {name: value for name, value in requests[0].items() if value}, stderr


def test_the_embedded_model_gets_options_that_suit_it_and_a_note(inferd, short_dir):
    models = [sample(), sample("all-MiniLM-L6-v2", generate=False)]
    request, stderr = request_to(inferd, short_dir, models)
    assert (request["temperature"], request["top_p"], request["max_tokens"]) == (
        CHAT_DEFAULTS.temperature,
        CHAT_DEFAULTS.top_p,
        CHAT_DEFAULTS.max_tokens,
    )
    assert stderr == f"{SAMPLE_NOTE}\n"


@pytest.mark.parametrize(
    ("option", "value", "sent"),
    [
        ("--temperature", "1.5", {"temperature": 1.5, "max_tokens": 256}),
        ("--top-k", "3", {"top_k": 3, "max_tokens": 256}),
        ("--top-p", "0.4", {"top_p": 0.4, "max_tokens": 256}),
    ],
)
def test_a_given_option_replaces_the_defaults_of_the_sample(
    inferd, short_dir, option, value, sent
):
    request, _ = request_to(inferd, short_dir, [sample()], option, value)
    del request["id"], request["messages"]
    assert request == sent


def test_a_given_length_is_kept(inferd, short_dir):
    request, _ = request_to(inferd, short_dir, [sample()], "--max-tokens", "2000")
    assert request["max_tokens"] == 2000


@pytest.mark.parametrize("models", [["other"], [CHAT_DEFAULTS.model, "other"]])
def test_another_model_gets_no_defaults_of_the_command(inferd, short_dir, models):
    request, stderr = request_to(inferd, short_dir, [*map(sample, models)])
    assert set(request) == {"id", "messages"}
    assert stderr == ""
