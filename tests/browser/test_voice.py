"""Somebody dictates: what a microphone hears is written down while it is said."""

import shutil
import subprocess
from contextlib import ExitStack, contextmanager

import pytest

from tests.browser.browsing import CHROMIUM, Reader
from tests.daemon.bridge import bridge_to
from tests.daemon.harness import mock
from tests.model.changes import HEARS_LITTLE
from tools.spoken_clip import clip_path

pytestmark = pytest.mark.short_version

SPOKEN = "One two three four five six seven eight nine ten. "
QUIET = 200
"""A sample of 16 bits below which nobody speaks."""


@contextmanager
def microphone(browser, sound):
    """A browser whose microphone hears a file of sound; it asks before a page may."""
    options = [
        "--no-sandbox",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={sound}",
    ]
    program = shutil.which(CHROMIUM)
    made = browser.browser_type.launch(executable_path=program, args=options)
    yield made
    made.close()


@contextmanager
def speaking(hearing, address, *, may=True):
    """A reader of the page who may use the microphone, or not."""
    context = hearing.new_context(permissions=["microphone"] if may else [])
    reader = Reader(context, address)
    yield reader.open()
    context.close()
    assert not reader.faults


@pytest.fixture(scope="module")
def hearing(browser, tmp_path_factory):
    """A browser whose microphone hears a voice again and again."""
    path = tmp_path_factory.mktemp("voice") / "spoken.wav"
    words = ["espeak-ng", "-s", "140", "-w", str(path), SPOKEN * 3]
    subprocess.run(words, check=True)
    with microphone(browser, path) as made:
        yield made


@pytest.fixture
def speaker(hearing):
    """Make readers of the page who may use the microphone, or not."""
    with ExitStack() as readers:
        yield lambda bridge, *, may: readers.enter_context(
            speaking(hearing, bridge.address, may=may)
        )


NOTE_SOUNDS = """() => {
    window.loudest = [];
    const send = window.fetch;
    window.fetch = async (path, options) => {
        const file = options.body instanceof FormData ? options.body.get('file') : null;
        if (file) {
            const view = new DataView(await file.arrayBuffer());
            const samples = Array.from({ length: (view.byteLength - 44) / 2 }, (_, n) => view.getInt16(44 + 2 * n, true));
            window.loudest.push(Math.max(...samples));
        }
        return send(path, options);
    };
}"""
"""Notes the loudest sample of each file of sound that the page sends."""


def test_what_is_said_is_written_down_while_it_is_said(speaker, bridge):
    reader = speaker(bridge, may=True)
    field = reader.page.get_by_label("Message", exact=True)
    reader.page.evaluate(NOTE_SOUNDS)
    field.fill("Note:")
    reader.button("Dictate").click()
    reader.page.wait_for_function(
        "() => document.getElementById('message').value.startsWith('Note: heard')"
    )
    assert reader.button("End dictation").is_visible()
    assert not field.is_editable()
    with reader.page.expect_request("**/v1/audio/transcriptions"):
        pass  # it goes on being written
    reader.button("End dictation").click()
    reader.button("Dictate").wait_for()
    assert field.is_editable()
    loudest = reader.page.evaluate("() => window.loudest")
    assert len(loudest) >= 2
    assert min(loudest) > QUIET


def test_who_allows_no_microphone_reads_how_to(speaker, bridge):
    reader = speaker(bridge, may=False)
    reader.button("Dictate").click()
    reader.page.get_by_text("does not let this page use the microphone").wait_for()
    assert reader.button("Dictate").is_enabled()


def test_where_no_model_hears_the_page_says_so(speaker, make_daemon):
    with bridge_to(make_daemon({"backend": [mock(tokens=["hi"])]}).start()) as deaf:
        reader = speaker(deaf, may=True)
        reader.button("Dictate").click()
        reader.page.get_by_text(
            "No model of this machine writes speech down"
        ).wait_for()
        assert reader.button("Dictate").is_enabled()


WHISPER = {"kind": "whispercpp", "name": "english", "n_threads": 1}
WORDS_ARE_THERE = """(words) => {
    const written = document.getElementById('message').value.toLowerCase().replace(/[^a-z]+/g, ' ');
    return written.includes(words);
}"""


@pytest.mark.model
def test_words_that_somebody_says_come_into_the_composer(browser, make_daemon):
    daemon = make_daemon(
        {"backend": [mock(tokens=["hi"]), WHISPER]}, environ=HEARS_LITTLE
    ).start()
    with (
        bridge_to(daemon) as heard,
        microphone(browser, f"{clip_path()}%noloop") as hearing,
        speaking(hearing, heard.address) as reader,
    ):
        reader.button("Dictate").click()
        for words in ("and so my fellow", "what you can do for your country"):
            reader.page.wait_for_function(WORDS_ARE_THERE, arg=words)
        assert reader.button("End dictation").is_visible()
        reader.button("End dictation").click()
        reader.button("Dictate").wait_for()
        assert reader.page.evaluate(WORDS_ARE_THERE, "and so my fellow")
