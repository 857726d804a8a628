"""How a session begins: its client, its chat, and what is told first."""

import argparse
import os
from functools import partial

from msgspec.structs import replace

from inferd import __version__
from inferd.chats.records import ChatSampling, OwnSettings
from inferd.cli.chat.asking import end_by_signals, silent_keys
from inferd.cli.chat.chat import terminal_size
from inferd.cli.chat.commands.parsing import NAMES
from inferd.cli.chat.editor import PromptEditor
from inferd.cli.chat.history.folder import ChatFolder
from inferd.cli.chat.history.prompts import PromptHistory
from inferd.cli.chat.screen.painter import Painter
from inferd.cli.chat.screen.rendering import LineStyle
from inferd.cli.chat.screen.transcript import show_branch
from inferd.cli.chat.session import ChatSession
from inferd.cli.chat.state import ChatState
from inferd.cli.commands.generate import SAMPLE_NOTE
from inferd.cli.connect import unserved
from inferd.cli.console import CommandError, stdin
from inferd.client.core.failures import ClientError, NoDaemonError
from inferd.client.library.blocking import Client
from inferd.models.embedded import CHAT_DEFAULTS
from inferd.paths import state_directory
from inferd.surfaces import SURFACES
from inferd.terminal import print_styled


def chat(arguments: argparse.Namespace, token: str | None) -> None:
    """Chat until the user leaves.

    Raises:
        CommandError: the daemon cannot be asked, or the chat cannot be opened.
    """
    style = line_style()
    state = ChatState(
        make_client=partial(make_client, arguments, token),
        painter=Painter(print_styled, terminal_size, style),
        settings=settings_of(arguments),
    )
    try:
        state.served = state.client.models()
    except ClientError as error:
        if isinstance(error, NoDaemonError) and arguments.url is None:
            raise unserved(
                error, arguments.directory, "generation", SURFACES
            ) from error
        raise CommandError(str(error)) from error
    check_model(state)
    if not arguments.private:
        keep_history(state)
    greet(state, is_sample=getattr(arguments, "is_sample", False))
    if arguments.continues:
        go_on(state, arguments)
    end_by_signals()
    editor = PromptEditor(
        [f"/{name}" for name in NAMES],
        state.status,
        has_colour=style.has_colour and style.has_styles,
        history=state.prompts,
    )
    try:
        with silent_keys(stdin().fileno()):
            ChatSession(state, editor.read).run()
    finally:
        state.leave()
        state.client.close()


def make_client(arguments: argparse.Namespace, token: str | None) -> Client:
    """Make the client of a session."""
    try:
        return Client(arguments.directory, url=arguments.url, token=token, timeout=None)
    except (ValueError, ClientError) as error:
        raise CommandError(str(error)) from error


def settings_of(arguments: argparse.Namespace) -> OwnSettings:
    """Return the settings of a new chat; those of the sample model suit it."""
    temperature, n_most, top_p = arguments.temperature, arguments.max_tokens, None
    if getattr(arguments, "is_sample", False):
        if temperature is None:
            temperature, top_p = CHAT_DEFAULTS.temperature, CHAT_DEFAULTS.top_p
        n_most = n_most or CHAT_DEFAULTS.max_tokens
    return OwnSettings(
        model_config_name=arguments.model,
        system_prompt=arguments.system,
        sampling_parameters=ChatSampling(
            temperature=temperature, top_p=top_p, max_new_tokens=n_most
        ),
    )


def check_model(state: ChatState) -> None:
    """Choose the first model if none is named; refuse one that is not there.

    All answers of a chat are then one model's, whatever they ask for.

    Raises:
        CommandError: it is not, or none generates text.
    """
    able = [each for each in state.served if "generate" in each.can]
    if not able:
        raise CommandError("the daemon serves no model that answers")
    if state.model is not None and state.facts is None:
        names = ", ".join(each.name for each in able)
        raise CommandError(f"{state.model}: no such model; there are: {names}")
    if state.model is None:
        state.change_settings(
            replace(state.settings_now, model_config_name=able[0].name)
        )


def keep_history(state: ChatState) -> None:
    """Keep the chats of the session; say so where that is not possible."""
    try:
        state.folder = ChatFolder()
    except CommandError as error:
        state.painter.note(f"error: {error}", "red")
        return
    state.prompts = PromptHistory(state_directory() / "chat-prompts.jsonl")


def greet(state: ChatState, *, is_sample: bool) -> None:
    """Say what answers, and what is known."""
    facts = state.facts
    name = state.model or (facts.name if facts else "")
    state.painter.note(f"inferd {__version__}, {name}; /help lists the commands")
    if is_sample:
        state.painter.note(SAMPLE_NOTE)


def go_on(state: ChatState, arguments: argparse.Namespace) -> None:
    """Open the chat that was used last; a model or a system message that is given is its."""
    if not open_last(state):
        state.painter.note("there is no chat to go on with: this is a new one")
        return
    settings = state.settings_now
    if arguments.model:
        settings = replace(settings, model_config_name=arguments.model)
    if arguments.system:
        settings = replace(settings, system_prompt=arguments.system)
    if settings != state.settings_now:
        state.change_settings(settings)
    show_branch(state.painter, state.conversation)
    state.tell_missing_model()


def open_last(state: ChatState) -> bool:
    """Open the chat that was used last, of those that no other session has open."""
    for chat_ in state.folder.chats() if state.folder else ():
        try:
            state.open(chat_.id)
        except CommandError:
            continue
        return True
    return False


def line_style() -> LineStyle:
    """Return how lines are made for this terminal."""
    has_styles = os.environ.get("TERM", "dumb") != "dumb"
    has_colour = not os.environ.get("NO_COLOR")
    return LineStyle(0, has_colour, has_styles)
