import pytest

from bench.peers import whisper_cli
from bench.peers.whisper_cli import Heard, command, hear, seconds_in, text_in

WRITTEN = """
[00:00:00.000 --> 00:00:08.000]   And so my fellow Americans
[00:00:08.000 --> 01:00:11.020]   ask [not] what your country
"""
TOLD = """\
whisper_print_timings:     load time =   245.93 ms
whisper_print_timings:   sample time =    15.01 ms /     1 runs (    15.01 ms per run)
whisper_print_timings:    total time =  2242.68 ms
"""


def test_the_program_is_built_once_for_a_release_and_its_flags(built, monkeypatch):
    first = whisper_cli.whisper_cli()
    assert whisper_cli.whisper_cli() == first
    assert first.name == "whisper-cli"
    assert len(built) == 1
    monkeypatch.setattr(whisper_cli, "FLAGS", ("-DGGML_NATIVE=ON",))
    assert whisper_cli.whisper_cli() != first
    assert len(built) == 2


def test_it_decodes_as_the_library_does_by_default(built, tmp_path):
    line = command(tmp_path / "m.bin", tmp_path / "s.wav", threads=2)
    assert line[1:] == [
        *("--model", str(tmp_path / "m.bin"), "--threads", "2", "--language", "en"),
        *("--beam-size", "1", "--best-of", "5", str(tmp_path / "s.wav")),
    ]


def test_its_segments_are_one_text():
    assert text_in(WRITTEN) == "And so my fellow Americans ask [not] what your country"


def test_its_time_is_without_the_load():
    assert seconds_in(TOLD) == pytest.approx(1.99675)


def test_a_run_gives_text_and_time():
    script = f"cat <<'E'\n{WRITTEN}E\ncat >&2 <<'E'\n{TOLD}E\n"
    heard = hear(["sh", "-c", script])
    assert heard == Heard(text_in(WRITTEN), seconds_in(TOLD))


def test_a_run_that_fails_ends_with_its_last_words():
    with pytest.raises(SystemExit, match="whisper-cli failed:\nno such model"):
        hear(["sh", "-c", "echo no such model >&2; exit 3"])
