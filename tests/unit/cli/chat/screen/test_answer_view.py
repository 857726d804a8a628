import os

from inferd.chats.estimate import DurationEstimate
from inferd.cli.chat.screen.answer_view import AnswerView, progress_text
from inferd.cli.chat.screen.painter import Painter
from inferd.cli.chat.screen.rendering import LineStyle
from inferd.client.core.answer import (
    ProgressEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
)
from tests.cases import each_case

SIZE = os.terminal_size((40, 10))


def view() -> tuple[AnswerView, list[str], list[os.terminal_size]]:
    written: list[str] = []
    sizes = [SIZE]
    style = LineStyle(0, has_colour=False, has_styles=False)
    painter = Painter(written.append, lambda: sizes[-1], style)
    return AnswerView(painter, DurationEstimate()), written, sizes


def test_thinking_is_one_line_that_is_replaced():
    shown, written, _ = view()
    shown.add([ThinkingEvent(text="a" * 900)])
    shown.add([ThinkingEvent(text="b" * 334)])
    shown.add([TextEvent(text="The answer.")])
    shown.end()
    text = "".join(written)
    assert "thinking, 900 characters so far" in text
    assert "thought, 1,234 characters" in text
    assert "aaa" not in text
    assert text.endswith("The answer.\r\n")


def test_calls_are_shown_and_the_end_is_marked():
    shown, written, _ = view()
    shown.add([TextEvent(text="I look.")])
    shown.add([ToolCallEvent(id="1", name="find\x1b", arguments={"a": "b" * 5000})])
    shown.end("(stopped)")
    text = "".join(written)
    assert r"calls find\x1b with" in text
    assert "…" in text
    assert text.endswith("(stopped)\r\n")


def test_a_tall_table_is_shown_by_its_end_until_it_is_whole():
    shown, written, _ = view()
    table = "| a |\n|---|\n" + "".join(f"| {number} |\n" for number in range(30))
    shown.add([TextEvent(text=table)])
    assert " 3\r\n" not in written[-1]
    assert " 29" in written[-1]
    shown.end()
    assert all(f" {number}" in written[-1] for number in range(30))


def test_lines_stay_where_the_width_changes_and_others_follow_below():
    shown, written, sizes = view()
    shown.add([TextEvent(text="one two three")])
    sizes.append(os.terminal_size((20, 10)))
    shown.add([TextEvent(text=" four five six")])
    assert written[-2:] == ["\r\n", "\r\none two three four\r\nfive six"]


@each_case(
    ("event", "text"),
    [
        (ProgressEvent(stage="queued", position=3), "queued, position 3, about 12 s"),
        (ProgressEvent(stage="queued", position=0), "queued"),
        (ProgressEvent(stage="loading", phase="weights"), "loading the model: weights"),
        (
            ProgressEvent(stage="prefill", processed=10, total=2000),
            "reading the prompt, 10 of 2,000 tokens",
        ),
    ],
)
def test_where_a_request_is_is_told(event, text):
    estimate = DurationEstimate()
    estimate.add(4)
    assert progress_text(event, estimate) == text
