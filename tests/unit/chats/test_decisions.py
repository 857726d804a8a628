import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from inferd.chats.branches import branch_to, check_parent
from inferd.chats.failures import ChatError
from inferd.chats.file_types import media_type_of
from inferd.chats.fitting import (
    TokenExcess,
    cut_after,
    cut_files,
    earlier_cut,
    left_out,
)
from inferd.chats.records import KeptAttachment, KeptMessage, LeftOut, MessageDetails
from inferd.chats.titles import TITLE_CHARS, title_of
from inferd.limits.bridge import MAX_ASKED_FILE_BYTES
from inferd.limits.protocol import MAX_ATTACHMENTS
from tests.cases import each_case


def message(name, parent, text="hello", **fields):
    role = "prompter" if name.startswith("p") else "assistant"
    state = "manual" if role == "prompter" else "complete"
    fields = {"role": role, "state": state, **fields}
    return KeptMessage(
        id=name, chat_id="c", parent_id=parent, created_us=0, text=text, **fields
    )


def conversation(sizes):
    names = [f"{'pa'[place % 2]}{place}" for place in range(len(sizes))]
    return [
        message(name, names[place - 1] if place else None, "x" * size)
        for place, (name, size) in enumerate(zip(names, sizes, strict=True))
    ]


def test_a_branch_leads_from_the_first_message_to_the_one_that_is_named():
    first, answer, other = (
        message("p1", None),
        message("a1", "p1"),
        message("a2", "p1"),
    )
    last = message("p2", "a2")
    assert branch_to([first, answer, other, last], "p2") == [first, other, last]
    assert branch_to([first], None) == []
    for broken in ([last], [message("p1", "a1"), message("a1", "p1")]):
        with pytest.raises(ChatError):
            branch_to(broken, broken[0].id)


@each_case(
    ("parent", "answers", "is_allowed"),
    [
        (None, False, True),
        (message("a", None), False, True),
        (message("p", None), True, True),
        (None, True, False),
        (message("p", None), False, False),
        (message("a", None), True, False),
        (message("a", None, state="pending"), False, False),
        (message("a", None, state="cancelled"), False, True),
    ],
)
def test_roles_alternate_and_nothing_follows_what_has_not_ended(
    parent, answers, is_allowed
):
    if is_allowed:
        check_parent(parent, answers=answers)
        return
    with pytest.raises(ChatError) as caught:
        check_parent(parent, answers=answers)
    assert caught.value.param == "parent_id"


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=40).filter(
        lambda sizes: len(sizes) % 2
    ),
    st.integers(1, 10_000),
    st.data(),
)
def test_whole_turns_go_and_the_last_prompt_stays(sizes, n_over, data):
    branch = conversation(sizes)
    already = data.draw(st.integers(0, len(branch) // 2)) * 2
    overflow = TokenExcess(n_tokens=sum(sizes) + 1, n_ctx=1024, n_over=n_over)
    cut = cut_after(branch, already, overflow)
    if cut is None:
        assert already == len(branch) - 1
    else:
        assert already < cut < len(branch)
        assert branch[cut].role == "prompter"


def test_as_much_goes_as_is_too_much_and_a_quarter_of_the_context():
    branch = conversation([99] * 21)
    overflow = TokenExcess(n_tokens=2100, n_ctx=2000, n_over=101)
    cut = cut_after(branch, 0, overflow)
    assert cut is not None
    assert 601 <= cut * 100 < 601 + 200


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, MAX_ASKED_FILE_BYTES)),
        min_size=1,
        max_size=15,
    ).filter(lambda sizes: len(sizes) % 2),
    st.data(),
)
def test_files_that_are_shown_are_within_the_bounds_or_those_of_the_last_prompt(
    files, data
):
    branch = [
        replace(
            each,
            attachments=tuple(
                KeptAttachment(
                    id="f", name="f", media_type="image/png", n_bytes=size, digest=""
                )
                for _ in range(count if each.role == "prompter" else 0)
            ),
        )
        for each, (count, size) in zip(
            conversation([1] * len(files)), files, strict=True
        )
    ]
    already = data.draw(st.integers(0, len(branch) // 2)) * 2
    start = cut_files(branch, already)
    assert already <= start < len(branch)
    assert branch[start].role == "prompter"

    def fits(first):
        shown = [each for message in branch[first:] for each in message.attachments]
        n_bytes = sum(each.n_bytes for each in shown)
        return len(shown) <= MAX_ATTACHMENTS and n_bytes <= MAX_ASKED_FILE_BYTES

    assert fits(start) or start == len(branch) - 1
    assert start == already or not fits(start - 2)


@each_case(
    ("beginning", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        (b"RIFF\0\0\0\0AVI ", None),
        (b"\0\0\0\x20ftypavif", "image/avif"),
        (b"\0\0\0\x20ftypM4A ", "audio/mp4"),
        (b"\xff\xfb\x90", "audio/mpeg"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'>", None),
        (b"<!doctype html>", None),
        (b"", None),
    ],
)
def test_a_file_is_what_it_begins_with(beginning, media_type):
    assert media_type_of(beginning) == media_type


def test_the_mark_names_what_the_model_was_shown():
    branch = conversation([1, 2, 3])
    assert left_out(branch, 0) is None
    cut = left_out(branch, 2, "summary")
    assert cut == LeftOut(n_left_out=2, first_kept="p2", summary="summary")
    answered = message("a3", "p2", details=MessageDetails(left_out=cut))
    assert earlier_cut([*branch, answered]) == cut
    assert earlier_cut(branch) is None


@settings(max_examples=40)
@given(st.text())
def test_a_title_is_one_short_line_that_can_be_printed(prompt):
    title = title_of(prompt)
    if title is not None:
        assert 0 < len(title) <= TITLE_CHARS
        assert title.isprintable()


def test_a_long_prompt_is_cut_between_words():
    assert title_of(" two\n words ") == "two words"
    assert title_of("word " * 30) == "word " * 10 + "word…"
    assert title_of("x" * 100) == "x" * 59 + "…"
    assert title_of("\n\t") is None
