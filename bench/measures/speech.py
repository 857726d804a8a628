"""Speech to text: how long it takes, and whether the words are right."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.daemon import running_daemon
from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, OneSide, Take, in_turns, reading
from bench.load.speech import ServerError
from bench.peers.whisper_cli import Heard, command, hear
from bench.sounds import SENTENCES, Sound, repeated, spoken
from bench.transcribe import heard_by_daemon
from bench.words import n_word_errors, words_of
from inferd import surfaces
from tools.spoken_clip import clip_path

AT_MOST: Final = 1.05
"""Of whisper.cpp's own time: what the way through a socket and two processes may cost."""

Listener = Callable[[Sound], Heard]


@contextmanager
def listeners(lab: Lab) -> Iterator[Mapping[str, Listener]]:
    """Run the sides that are wanted while inside."""
    sides: dict[str, Listener] = {}
    if lab.has("whisper_cli"):
        sides["whisper_cli"] = partial(heard_by_whisper_cli, lab)
    if not lab.has("inferd"):
        yield sides
        return
    tables = (
        '[[backend]]\nname = "speech"\nkind = "whispercpp"\n'
        f"model = {json.dumps(str(lab.model.path))}\nn_threads = {lab.n_threads}\n"
    )
    lab.note_text("inferd serve --config:\n" + tables)
    with running_daemon(tables, surfaces.V2.socket) as daemon:
        sides["inferd"] = partial(
            heard_by_daemon, daemon.directory / surfaces.V2.socket
        )
        yield sides


def heard_by_whisper_cli(lab: Lab, sound: Sound) -> Heard:
    """Have whisper.cpp's command line load the model and hear a sound."""
    line = command(lab.model.path, sound.path, threads=lab.n_threads)
    lab.note([*line[:-1], "FILE.wav"])
    return hear(line)


@contextmanager
def long_sound(lab: Lab) -> Iterator[Take]:
    """Have every side hear the same recording for a while."""
    with (
        TemporaryDirectory(prefix="inferd-sounds-") as scratch,
        listeners(lab) as sides,
    ):
        sound = repeated(clip_path(), lab.sizes.sound_s, Path(scratch))

        def listen(side: Listener) -> OneSide:
            heard = side(sound)
            told = {"first_words_ms": heard.first_s * 1e3} if heard.first_s else {}
            return OneSide(heard.seconds / sound.seconds, {"text": heard.text, **told})

        def take(number: int) -> Reading:
            works = {name: partial(listen, side) for name, side in sides.items()}
            taken = reading(number, works)
            check_alike({name: told["text"] for name, told in taken.details.items()})
            return Reading(
                taken.values,
                {
                    name: {key: each for key, each in told.items() if key != "text"}
                    for name, told in taken.details.items()
                },
            )

        take(0)
        yield take


@contextmanager
def sentences(lab: Lab) -> Iterator[Take]:
    """Have every side hear the same sentences, one after another."""
    wanted = SENTENCES[: lab.sizes.n_sentences]
    n_words = sum(len(words_of(sentence)) for sentence in wanted)
    with (
        TemporaryDirectory(prefix="inferd-sounds-") as scratch,
        listeners(lab) as sides,
    ):
        sounds = spoken(wanted, Path(scratch))

        def take(number: int) -> Reading:
            wrong = dict.fromkeys(sides, 0)
            for sentence, sound in zip(wanted, sounds, strict=True):
                works = {name: partial(side, sound) for name, side in sides.items()}
                heard = in_turns(number, works)
                check_alike({name: each.text for name, each in heard.items()})
                for name, each in heard.items():
                    wrong[name] += n_word_errors(sentence, each.text)
            return Reading({name: 100 * each / n_words for name, each in wrong.items()})

        yield take


def check_alike(texts: Mapping[str, str]) -> None:
    """See that all sides heard the same.

    Raises:
        ServerError: they did not.
    """
    if len(set(texts.values())) > 1:
        raise ServerError(f"the sides heard different words: {json.dumps(dict(texts))}")


DEAF: Final = {
    "peer": "llama-server has no such model",
    "raw": "whisper.cpp's benchmark decodes no sound",
}
SPEECH: Final = Measure(
    key="speech",
    title="speech to text, two minutes",
    unit="s a second of sound",
    is_more_better=False,
    open=long_sound,
    goals=(Goal("ratio_whisper_cli", at_most=AT_MOST),),
    reasons=DEAF,
    is_long=True,
)
SPEECH_WORDS: Final = Measure(
    key="speech_words",
    title="words heard wrongly, of spoken sentences",
    unit="of 100 words",
    is_more_better=False,
    open=sentences,
    reasons=DEAF,
    is_long=True,
)
"""That both sides hear the same is a condition: else there is no figure."""
