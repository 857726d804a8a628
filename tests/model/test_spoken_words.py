"""Sentences that were never recorded: the daemon hears what whisper.cpp hears alone."""

import pytest

from bench.sounds import SENTENCES, spoken
from bench.transcribe import heard_by_daemon
from bench.words import n_word_errors, words_of
from inferd import surfaces
from tests.daemon.fixtures import daemons
from tests.model.embedded import embedded_path
from tests.model.whisper_alone import heard_alone

pytestmark = [pytest.mark.model, pytest.mark.slow]

MODEL = "speech"
AT_ONCE = 6
"""Sentences in one breath: together they last for less than a window of half a minute."""
BEARABLE = 0.4
"""Share of words that a small model mishears of a synthetic voice, numbers that it writes
in figures included."""
TEXT = " ".join(SENTENCES[-AT_ONCE:])


@pytest.fixture(scope="module")
def daemon():
    backend = {
        "name": MODEL,
        "kind": "whispercpp",
        "model": f"embedded:{MODEL}",
        "n_threads": 1,
    }
    with daemons() as make:
        yield make({"backend": [backend]}).start()


@pytest.mark.long
def test_the_daemon_writes_the_words_that_whisper_cpp_writes_alone(daemon, tmp_path):
    [sound] = spoken([TEXT], tmp_path)
    ours = heard_by_daemon(daemon.directory / surfaces.V2.socket, sound).text
    model = embedded_path(MODEL)
    [alone] = heard_alone(model, [sound.path])
    assert ours == "".join(words for *_, words in alone).strip()
    assert n_word_errors(TEXT, ours) <= BEARABLE * len(words_of(TEXT))
