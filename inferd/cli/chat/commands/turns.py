"""Answers again, prompts changed, branches."""

from inferd.cli.chat.commands.numbers import chosen
from inferd.cli.chat.commands.parsing import as_typed
from inferd.cli.chat.screen.transcript import show_branch
from inferd.cli.chat.state import ChatState
from inferd.cli.console import CommandError

_EXCERPT_CHARS = 60


def regenerate(state: ChatState, _: str) -> None:
    """Have the last prompt answered again; the answer before stays as a branch."""
    prompt = state.conversation.last_prompt
    if prompt is None:
        raise CommandError("there is no prompt to answer")
    state.go_to(prompt.id)
    state.asks_again = True


def edit(state: ChatState, _: str) -> None:
    """Begin the next prompt with the last one, which it then replaces in this branch."""
    prompt = state.conversation.last_prompt
    if prompt is None:
        raise CommandError("there is no prompt to change")
    state.draft = as_typed(prompt.text)
    state.edited = prompt


def branch(state: ChatState, number: str) -> None:
    """List the branches, or go on with another."""
    tails = state.conversation.tails()
    if number:
        state.go_to(chosen(tails, number, "/branch lists them").id)
        state.n_used = None
        show_branch(state.painter, state.conversation)
        return
    current = state.conversation.chat.tail_id
    for place, tail in enumerate(tails, 1):
        mark = "*" if tail.id == current else " "
        words = " ".join(tail.text.split())[:_EXCERPT_CHARS]
        state.painter.finish(
            [state.painter.style.line(f"{mark} {place}  {words or '(empty)'}")]
        )
    if not tails:
        state.painter.note("there is nothing yet")
