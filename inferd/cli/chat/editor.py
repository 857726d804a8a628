"""The line editor: keys, pastes of several lines, prompts of earlier sessions."""

from collections.abc import Callable, Sequence
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from inferd.terminal import escape

_STYLE: Final = Style.from_dict({"bottom-toolbar": "noreverse", "prompt": "bold"})


class PromptEditor:
    """Reads prompts.

    Enter sends; Alt-Enter and Ctrl-J begin a new line, and pastes keep their lines.

    Args:
        words: commands that are completed.
        status: the line below the prompt.
        has_colour: whether the terminal may be told colours.
        history: prompts of earlier sessions.
    """

    def __init__(
        self,
        words: Sequence[str],
        status: Callable[[], str],
        *,
        has_colour: bool,
        history: History | None = None,
    ) -> None:
        self._status = status
        self._session: PromptSession[str] = PromptSession(
            message=[("", "\n"), ("class:prompt", "> ")],
            multiline=True,
            prompt_continuation="  ",
            key_bindings=_keys(),
            completer=WordCompleter([*words], sentence=True),
            complete_while_typing=False,
            history=history or InMemoryHistory(),
            bottom_toolbar=self._toolbar,
            style=_STYLE,
            color_depth=None if has_colour else ColorDepth.DEPTH_1_BIT,
            reserve_space_for_menu=0,
            enable_history_search=Condition(lambda: False),
        )

    def _toolbar(self) -> StyleAndTextTuples:
        return [("", escape(self._status()))]

    def read(self, default: str = "") -> str | None:
        """Return a prompt; ``None`` where the session is to end.

        Args:
            default: a text to begin with.
        """
        try:
            return self._session.prompt(default=default)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _break(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
