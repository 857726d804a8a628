"""The parts of one answer on the screen, and where its request is before they come."""

from collections.abc import Sequence
from typing import Final

import msgspec

from inferd.chats.estimate import DurationEstimate
from inferd.cli.chat.screen.blocks import BlockSplitter, MarkdownBlock
from inferd.cli.chat.screen.painter import Painter
from inferd.client.core.answer import (
    Event,
    ProgressEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
)

_DIM: Final = "dim"
MAX_CALL_CHARS: Final = 2000
"""Characters of the arguments of a call that are shown."""


class AnswerView:
    """Draws an answer while it comes.

    Args:
        painter: of the terminal.
        estimate: of how long answers take here.
    """

    def __init__(self, painter: Painter, estimate: DurationEstimate) -> None:
        self._painter = painter
        self._estimate = estimate
        self._splitter = BlockSplitter()
        self._n_thoughts = 0
        self._status = "waiting"
        self._is_thinking = False

    def add(self, events: Sequence[Event]) -> None:
        """Take parts of the answer, and draw them."""
        self._painter.measure()
        for event in events:
            match event:
                case TextEvent(text=text):
                    self._end_thinking()
                    self._status = ""
                    self._finish(self._splitter.feed(text))
                case ThinkingEvent(text=text):
                    self._n_thoughts += len(text)
                    self._is_thinking = True
                case ToolCallEvent():
                    self._show_call(event)
                case ProgressEvent():
                    self._status = progress_text(event, self._estimate)
        self._painter.draw(self._live())

    def end(self, mark: str = "") -> None:
        """Draw the end of the answer, and why it is one, if it is not its own."""
        self._status = ""
        self._end_thinking()
        self._finish_rest()
        self._painter.finish(["", self._line(mark)] if mark else [])

    def summarising(self, events: Sequence[Event]) -> None:
        """Show that turns are summarised before the answer can begin."""
        told = [each for each in events if isinstance(each, ProgressEvent)]
        self._status = "summarising"
        if told:
            self._status += f": {progress_text(told[-1], self._estimate)}"
        self._painter.draw(self._live())

    def stopping(self) -> None:
        """Show that the answer is to end."""
        if not self._splitter.rest.text:
            self._status = "stopping"
            self._painter.draw(self._live())

    def _live(self) -> list[str]:
        """Return the lines that may still change."""
        if self._is_thinking:
            shown = f"thinking, {self._n_thoughts:,} characters so far"
            return ["", self._line(shown)]
        if self._splitter.rest.text.strip():
            return self._lines(self._splitter.rest, is_last=True)
        return ["", self._line(f"({self._status})")] if self._status else []

    def _line(self, text: str) -> str:
        return self._painter.style.line(text, _DIM)

    def _lines(self, block: MarkdownBlock, *, is_last: bool = False) -> list[str]:
        lines = self._painter.style.markdown(block)
        if not block.is_joined:
            lines = ["", *lines]
        if is_last and block.is_table:
            return lines[-self._painter.n_live :]
        return lines

    def _finish(self, blocks: Sequence[MarkdownBlock]) -> None:
        for block in blocks:
            if block.text.strip():
                self._painter.finish(self._lines(block))

    def _finish_rest(self) -> None:
        rest, self._splitter = self._splitter.rest, BlockSplitter()
        self._finish([rest])

    def _end_thinking(self) -> None:
        if self._is_thinking:
            self._is_thinking = False
            shown = f"thought, {self._n_thoughts:,} characters: /thinking shows it"
            self._painter.finish(["", self._line(shown)])

    def _show_call(self, call: ToolCallEvent) -> None:
        self._end_thinking()
        self._finish_rest()
        arguments = msgspec.json.encode(call.arguments).decode()
        if len(arguments) > MAX_CALL_CHARS:
            arguments = f"{arguments[:MAX_CALL_CHARS]}…"
        shown = f"calls {call.name} with {arguments} (nothing here carries it out)"
        self._painter.finish(["", *self._painter.style.plain(shown, _DIM)])


def progress_text(event: ProgressEvent, estimate: DurationEstimate) -> str:
    """Say where a request is."""
    match event:
        case ProgressEvent(stage="queued", position=int(position)) if position > 0:
            seconds = estimate.of(position)
            about = "" if seconds is None else f", about {seconds:.0f} s"
            return f"queued, position {position}{about}"
        case ProgressEvent(stage="prefill", processed=int(done), total=int(total)):
            return f"reading the prompt, {done:,} of {total:,} tokens"
        case ProgressEvent(stage="loading", phase=phase):
            return f"loading the model{f': {phase}' if phase else ''}"
        case _:
            return event.stage
