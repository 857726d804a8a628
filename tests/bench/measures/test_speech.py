from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.lab import Lab, ModelFile, Sizes
from bench.load.speech import ServerError
from bench.measures import speech
from bench.measures.speech import SPEECH, SPEECH_WORDS
from bench.peers.whisper_cli import Heard
from bench.sounds import Sound

SAID = ("One two three.", "Four five.")


@pytest.fixture
def lab():
    return Lab(
        ModelFile("m", Path("/models/m.bin")),
        frozenset({"inferd", "whisper_cli"}),
        n_threads=2,
        sizes=Sizes(sound_s=10, n_sentences=2),
    )


@pytest.fixture
def world(monkeypatch):
    """Both sides, who hear what is set; and what there is to hear."""
    said = SimpleNamespace(daemon={}, other={}, tables="")

    @contextmanager
    def daemon(tables, leaf):
        said.tables = tables
        yield SimpleNamespace(directory=Path("/run"))

    def sound(name, seconds=1):
        return Sound(Path(name), bytes(4 * 16_000 * seconds))

    monkeypatch.setattr(speech, "running_daemon", daemon)
    monkeypatch.setattr(
        speech, "heard_by_daemon", lambda _, sound: said.daemon[str(sound.path)]
    )
    monkeypatch.setattr(speech, "hear", lambda line: said.other[line[-1]])
    monkeypatch.setattr(
        speech,
        "command",
        lambda *files, threads: ["whisper-cli", str(threads), files[1].name],
    )
    monkeypatch.setattr(speech, "SENTENCES", SAID)
    monkeypatch.setattr(speech, "repeated", lambda *_: sound("long", 10))
    monkeypatch.setattr(speech, "spoken", lambda texts, _: [*map(sound, texts)])
    return said


def test_the_figure_is_time_over_sound(lab, world):
    world.daemon["long"] = Heard("Ask not", 1.0, first_s=0.25)
    world.other["long"] = Heard("Ask not", 2.0)
    with SPEECH.open(lab) as take:
        taken = take(0)
    assert taken.values == {"inferd": 0.1, "whisper_cli": 0.2}
    assert taken.of_details("first_words_ms") == {"inferd": 250}
    assert "/models/m.bin" in world.tables
    assert "n_threads = 2" in world.tables
    assert "whisper-cli 2 FILE.wav" in lab.commands


@pytest.mark.parametrize("measure", [SPEECH, SPEECH_WORDS], ids=lambda each: each.key)
def test_there_is_no_figure_if_the_sides_hear_different_words(lab, world, measure):
    for name in ("long", *SAID):
        world.daemon[name] = Heard("Ask not", 1.0)
        world.other[name] = Heard("Ask now", 1.0)
    with pytest.raises(ServerError, match='"Ask now"'):
        with measure.open(lab) as take:
            take(0)


def test_words_heard_wrongly_are_counted_over_all_sentences(lab, world):
    for side in (world.daemon, world.other):
        side[SAID[0]] = Heard("One two tree", 1.0)
        side[SAID[1]] = Heard("four, five", 1.0)
    with SPEECH_WORDS.open(lab) as take:
        assert take(0).values == {"inferd": 20, "whisper_cli": 20}


def test_one_side_alone_is_measured_as_well(lab, world):
    alone = Lab(lab.model, frozenset({"whisper_cli"}), n_threads=1, sizes=lab.sizes)
    world.other["long"] = Heard("Ask not", 2.0)
    with SPEECH.open(alone) as take:
        assert take(0).values == {"whisper_cli": 0.2}
