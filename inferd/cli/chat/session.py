"""A session: prompts are read and answered, one after another, until it is left."""

from collections.abc import Callable

from msgspec.structs import replace

from inferd.chats.records import KeptMessage
from inferd.cli.chat.answers import Answerer
from inferd.cli.chat.commands.catalogue import run
from inferd.cli.chat.commands.parsing import CommandLine, parse
from inferd.cli.chat.conversation import new_message
from inferd.cli.chat.faults import advice_for
from inferd.cli.chat.screen.painter import Painter
from inferd.cli.chat.state import ChatState, new_id, now_us
from inferd.cli.console import CommandError
from inferd.client.core.failures import ClientError
from inferd.client.media.errors import MediaError, MissingExtraError


class ChatSession:
    """Reads prompts and has them answered.

    Args:
        state: of the session.
        read: asks for a prompt, which begins with a text; ``None`` at the end.
    """

    def __init__(self, state: ChatState, read: Callable[[str], str | None]) -> None:
        self._state = state
        self._read = read
        self._answerer = Answerer(state)

    def run(self) -> None:
        """Go on until the session is left."""
        state = self._state
        while not state.is_ending:
            draft, state.draft = state.draft, ""
            text = self._read(draft)
            edited, state.edited = state.edited, None
            if text is None:
                return
            state.painter.measure()
            if text.strip():
                self._take(text, edited)

    def _take(self, text: str, edited: KeptMessage | None) -> None:
        state = self._state
        try:
            asked = parse(text)
            if isinstance(asked, CommandLine):
                run(state, asked)
            else:
                self._send(asked, edited)
            if state.asks_again:
                state.asks_again = False
                self._answer_again()
        except CommandError as error:
            _tell(state.painter, error.text, error.hint)
        except (ClientError, MediaError, MissingExtraError) as error:
            _tell(state.painter, str(error), advice_for(error))
        except KeyboardInterrupt:
            state.painter.note("(stopped)")

    def _send(self, text: str, edited: KeptMessage | None) -> None:
        """Add a prompt to the chat, with what goes with it, and have it answered."""
        state = self._state
        parent_id = state.conversation.parent_of_next
        if edited is not None:
            parent_id = edited.parent_id
        files = [*state.pending]
        prompt = new_message(
            state.conversation,
            message_id=new_id(),
            now_us=now_us(),
            parent_id=parent_id,
            is_prompt=True,
            text="\n".join([*state.texts, text]),
        )
        before = edited.attachments if edited else ()
        attached = (*before, *(each.kept for each in files))
        prompt = replace(prompt, attachments=attached)
        state.keep_prompt(prompt, files)
        state.pending.clear()
        state.texts.clear()
        self._answerer.answer(prompt)

    def _answer_again(self) -> None:
        prompt = self._state.conversation.last_prompt
        if prompt is not None:
            self._answerer.answer(prompt)


def _tell(painter: Painter, text: str, advice: str) -> None:
    painter.note(f"error: {text}", "red")
    if advice:
        painter.note(advice)
