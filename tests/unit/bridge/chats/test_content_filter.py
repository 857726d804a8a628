"""What becomes of texts by the word of the operator's filter, or without it."""

import pytest
import trio

from inferd.bridge.chats.content_filter import (
    ContentFilter,
    FilterFaultError,
    refusal,
)
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.chats.records import FilterWord
from inferd.config.filters import FilterSettings
from tests.cases import each_case

SETTINGS = FilterSettings(command=("/bin/true",))
PASSING = FilterSettings(command=("/bin/true",), on_failure="pass")


def saying(said):
    async def run(settings, asked):
        assert asked == b'{"role":"prompter","text":"hello"}\n'
        if said is None:
            await trio.sleep_forever()
        if isinstance(said, Exception):
            raise said
        return said

    return run


async def word(said, settings=SETTINGS):
    return await ContentFilter(settings, saying(said)).word_on(
        "prompter", "hello", "ada"
    )


async def test_a_text_passes_is_marked_or_refused_with_words_for_people():
    assert await word(b'{"verdict": "pass"}') is None
    marked = await word(b'{"verdict": "mark", "label": "rude\\n", "level": 2}\n')
    assert marked == FilterWord(of="prompter", verdict="mark", label="rude ", level=2)
    refused = await word(b'{"verdict": "refuse", "reason": "Not here."}')
    assert refused is not None
    failure = refusal(refused)
    assert failure.reason is Reason.CONTENT_REFUSED
    assert str(failure) == "the filter of this service refused the message: Not here."
    assert "gave no reason" in str(
        refusal(FilterWord(of="assistant", verdict="refuse"))
    )


@each_case(
    ("said", "words"),
    [
        (b"", "ended without a word"),
        (b"yes", "no verdict"),
        (b'{"verdict": "perhaps"}', "no verdict"),
        (b'{"verdict": "pass", "other": 1}', "no verdict"),
        (b'{"verdict": "pass"} {"verdict": "refuse"}', "no verdict"),
        (FilterFaultError("it cannot be started"), "cannot be started"),
        (None, "takes over 10 s"),
    ],
)
async def test_nothing_passes_a_filter_that_fails_unless_that_is_wanted(
    said, words, autojump_clock
):
    with pytest.raises(BridgeError, match=words) as caught:
        await word(said)
    assert caught.value.reason is Reason.FILTER_FAILED
    passed = await word(said, PASSING)
    assert passed is not None
    assert (passed.verdict, words in passed.reason) == ("missing", True)


async def test_texts_that_it_does_not_read_pass_unseen():
    assert not ContentFilter(None).reads("prompter")
    assert not ContentFilter(SETTINGS).reads("assistant")
    assert await ContentFilter(SETTINGS).word_on("assistant", "hello", "ada") is None
    assert await ContentFilter(SETTINGS).word_on("prompter", "", "ada") is None
