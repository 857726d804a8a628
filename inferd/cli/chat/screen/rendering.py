"""Markdown as lines for the terminal, by rich; pure.

A model's text is escaped before the parser reads it, so that it controls nothing, and again
after that, because the parser turns ``&#x202e;`` into the character. HTML stays text. Links show
their address and are none to the terminal, which would open what the text hides.
"""

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from inferd.cli.chat.screen.blocks import MarkdownBlock
from inferd.terminal import escape

MIN_WIDTH: Final = 16
"""Columns that lines are made for at least: fewer have no room for a list."""
_TAB: Final = 4
_CODE_THEME: Final = "ansi_dark"
"""The sixteen colours of the terminal, which its user has chosen."""
_THEME: Final = Theme(
    {"markdown.code": "bold cyan", "markdown.h1": "bold", "markdown.h2": "bold"}
)
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_TRAILING: Final = re.compile(r"(?: |\x1b\[[0-9;]*m)+$")


class _LeftHeading(Heading):
    """A heading at the left, whatever its level."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _PlainCode(CodeBlock):
    """A code block on the terminal's own background, without empty lines around it."""

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        yield Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme=self.theme,
            word_wrap=True,
            padding=(0, 0, 0, 2),
            background_color="default",
        )


class _SafeMarkdown(Markdown):
    """Markdown whose texts control nothing, without HTML, pictures and links."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _PlainCode,
        "code_block": _PlainCode,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme=_CODE_THEME, hyperlinks=False)
        parser = MarkdownIt("commonmark", {"html": False})
        parser.enable(["strikethrough", "table"]).disable("image")
        self.parsed = [_escaped(token) for token in parser.parse(text)]


def _escaped(token: Token) -> Token:
    """Escape what the parser has put together from harmless characters."""
    token.content = escape(token.content, is_prose=True)
    token.info = escape(token.info)
    for name, value in token.attrs.items():
        token.attrs[name] = escape(value) if isinstance(value, str) else value
    for child in token.children or ():
        _escaped(child)
    return token


@dataclass(frozen=True)
class LineStyle:
    """How lines are made."""

    width: int
    has_colour: bool = True
    has_styles: bool = True
    """False for a terminal that knows none, such as ``dumb``."""

    @cached_property
    def _console(self) -> Console:
        return Console(
            file=io.StringIO(),
            width=max(self.width, MIN_WIDTH),
            force_terminal=self.has_styles,
            no_color=not self.has_colour,
            color_system="standard" if self.has_styles else None,
            theme=_THEME,
            markup=False,
            emoji=False,
            highlight=False,
            legacy_windows=False,
            _environ={},
        )

    def markdown(self, block: MarkdownBlock) -> list[str]:
        """Return the lines of a block; of what cannot be drawn as Markdown, its text."""
        text = harmless(block.text)
        try:
            return self._lines(_SafeMarkdown(text))
        except Exception:  # noqa: BLE001  # of libraries, on whatever a model writes
            return self.plain(text)

    def plain(self, text: str, style: str = "") -> list[str]:
        """Return the lines of a text, wrapped."""
        return self._lines(Text(harmless(text), style=style, overflow="fold"))

    def line(self, text: str, style: str = "") -> str:
        """Return one line of a text, cut where it is too long."""
        shown = Text(escape(text), style=style, no_wrap=True, overflow="ellipsis")
        return next(iter(self._lines(shown)), "")

    def _lines(self, drawn: Markdown | Text) -> list[str]:
        with self._console.capture() as capture:
            self._console.print(drawn, soft_wrap=False)
        return _trimmed(capture.get().split("\n"))


def harmless(text: str) -> str:
    """Escape a model's text, of any number of lines."""
    return escape(text.replace("\r\n", "\n"), is_prose=True).expandtabs(_TAB)


def _trimmed(lines: Iterable[str]) -> list[str]:
    """Return lines without the empty ones at both ends."""
    found = [*map(_without_end, lines)]
    while found and not _STYLE.sub("", found[-1]).strip():
        found.pop()
    while found and not _STYLE.sub("", found[0]).strip():
        found.pop(0)
    return found


def _without_end(line: str) -> str:
    """Return a line without the spaces at its end, which would be copied with it."""
    end = "\x1b[0m" if "\x1b" in line else ""
    return _TRAILING.sub(end, line)
