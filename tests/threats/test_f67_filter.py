"""Somebody writes what a filter refuses, to a filter that also fails."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import mock
from tests.daemon.fixtures import daemons
from tests.daemon.test_chats import Person, tokens

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

FILTER = """
import json, sys, time
asked = json.loads(sys.stdin.readline())
text = asked["text"]
if "hang" in text:
    time.sleep(3600)
if "endless" in text:
    while True:
        sys.stdout.write("x" * 65536)
if "die" in text:
    sys.exit(3)
said = {"verdict": "pass"}
if "gun" in text or "secret" in text:
    said = {"verdict": "refuse", "reason": "Not here.", "label": asked["role"]}
elif "rude" in text:
    said = {"verdict": "mark", "label": "rude", "level": 1}
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def ada(tmp_path_factory) -> Iterator[Person]:
    folder: Path = tmp_path_factory.mktemp("filter")
    program = folder / "filter.py"
    program.write_text(FILTER)
    settings = {
        "command": [sys.executable, str(program)],
        "reads": [str(program)],
        "answers": True,
        "limit_s": 20,
    }
    chats = {"database": str(folder / "chats.db"), "filter": settings}
    backends = [
        mock(name="polite", tokens=["All ", "is ", "well."]),
        mock(name="leaky", tokens=["the ", "secret ", "key"], token_delay_ms=20),
    ]
    with daemons() as make:
        daemon = make({"backend": backends, "chats": chats}).start()
        with bridge_to(daemon, "--development") as bridge:
            person = Person(bridge, "ada")
            yield person
            person.http.close()


def last(ada: Person, text: str, model: str = "polite"):
    answer = ada.say(ada.chat(), text, model)
    events, _ = ada.events(answer, "0-0-0")
    return events, ada.ask("GET", answer)


def test_what_passes_is_answered_and_what_is_marked_says_so(ada):
    events, message = last(ada, "hello")
    assert message["content"] == "".join(tokens(events)) == "All is well."
    assert message["safety_label"] is None
    events, message = last(ada, "a rude word")
    [told] = [each for each in events if each["event_type"] == "safe_prompt"]
    assert (told["safe_prompt"], told["word"]["verdict"]) == ("rude", "mark")
    assert (message["safety_label"], message["safety_level"]) == ("rude", 1)
    assert message["content"] == "All is well."


def test_what_is_refused_is_neither_asked_nor_shown_nor_stored(ada):
    events, message = last(ada, "a gun")
    assert events[-1]["code"] == "content_refused"
    assert "refused the message: Not here." in events[-1]["error"]
    assert (message["content"], message["usage"]) == ("", None)
    events, message = last(ada, "tell me", "leaky")
    assert events[-1]["code"] == "content_refused"
    assert "refused the answer: Not here." in events[-1]["error"]
    assert tokens(events) == []
    assert (message["content"], message["safety_label"]) == ("", "assistant")
    assert ada.ask("GET", "/chats/search?q=key")["hits"] == []


def test_a_filter_that_dies_or_never_ends_lets_nothing_pass(ada):
    for text, words in (("die", "without a word"), ("endless", "over 65536 bytes")):
        events, message = last(ada, text)
        assert events[-1]["code"] == "filter_failed"
        assert words in events[-1]["error"]
        assert message["content"] == ""
