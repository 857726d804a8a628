"""Which model answers, and how."""

from collections.abc import Sequence

from msgspec.structs import replace

from inferd.chats.records import ContextPolicy, WorkParameters
from inferd.cli.chat.questions import conversation_of, options_of
from inferd.cli.chat.state import ChatState
from inferd.cli.console import CommandError
from inferd.client.core.failures import ContextOverflow
from inferd.client.core.offers import ServedFacts
from inferd.limits.bridge import MAX_SYSTEM_PROMPT_CHARS

_SHOWN_ABILITIES = ("vision", "audio", "thinking", "tools")
_POLICIES: dict[str, ContextPolicy] = {
    "omit": "omit",
    "summarise": "summarise",
    "refuse": "refuse",
}
_POLICY_TEXTS = {
    "omit": "the oldest turns are left out",
    "summarise": "the oldest turns are summarised by the model",
    "refuse": "the prompt is refused",
}


def model(state: ChatState, name: str) -> None:
    """List the models, or go on with another."""
    served = [each for each in state.look_up() if "generate" in each.can]
    if not name:
        _list(state, served)
        return
    found = next((each for each in served if name in (each.name, *each.aliases)), None)
    if found is None:
        known = ", ".join(each.name for each in served) or "none"
        raise CommandError(f"{name}: no such model; there are: {known}")
    lost = losses(state.facts, found, state.n_used)
    state.change_settings(replace(state.settings_now, model_config_name=found.name))
    state.painter.note(f"{found.name} answers from here on")
    for each in lost:
        state.painter.note(f"  {each}")


def _list(state: ChatState, served: Sequence[ServedFacts]) -> None:
    chosen = state.facts
    for each in served:
        mark = "*" if chosen and chosen.name == each.name else " "
        room = f"{each.n_ctx:,} tokens" if each.n_ctx else ""
        able = ", ".join(name for name in _SHOWN_ABILITIES if name in each.can)
        words = "  ".join(filter(None, (each.name, each.state, room, able)))
        state.painter.note(f"{mark} {words}", "")
    if not served:
        state.painter.note("no daemon tells which models there are")


def losses(
    before: ServedFacts | None, after: ServedFacts, n_used: int | None
) -> list[str]:
    """Say what a chat loses with another model; pure."""
    lost: list[str] = []
    if before is None or before.name == after.name:
        return lost
    if n_used and after.n_ctx and n_used >= after.n_ctx:
        lost.append(
            f"the chat has about {n_used:,} tokens, and the context {after.n_ctx:,}: the "
            "oldest turns do not fit"
        )
    gone = before.can - after.can
    if "vision" in gone:
        lost.append("it takes no pictures: those of this chat are told by name alone")
    if "audio" in gone:
        lost.append("it takes no sound: recordings are told by name alone")
    if "thinking" in gone:
        lost.append("it does not reason before it answers")
    if n_used:
        lost.append("it reads the whole chat anew, so its first answer takes longer")
    return lost


def system(state: ChatState, text: str) -> None:
    """Show, set or remove the system message."""
    if not text:
        known = state.settings_now.system_prompt
        state.painter.note(known or "there is no system message", "")
        return
    if len(text) > MAX_SYSTEM_PROMPT_CHARS:
        raise CommandError(
            f"a system message has at most {MAX_SYSTEM_PROMPT_CHARS} characters"
        )
    new = None if text == "-" else text
    state.change_settings(replace(state.settings_now, system_prompt=new))
    state.painter.note("the system message is removed" if new is None else "noted")


def thinking(state: ChatState, choice: str) -> None:
    """Show the last reasoning, or choose whether to ask for it."""
    match choice:
        case "":
            answer = state.conversation.last_answer
            thoughts = answer.thinking if answer else ""
            state.painter.note(thoughts or "the last answer came without reasoning")
        case "on" if state.facts and "thinking" not in state.facts.can:
            raise CommandError(f"{state.facts.name} does not reason before it answers")
        case "on" | "off":
            state.thinking = choice == "on"
            state.painter.note(f"thinking is {choice}")
        case _:
            raise CommandError("/thinking shows it; /thinking on, /thinking off")


def context(state: ChatState, choice: str) -> None:
    """Choose what becomes of turns that the context has no room for."""
    if choice:
        if choice not in _POLICIES:
            raise CommandError(f"{choice}: one of {', '.join(_POLICIES)}")
        state.change_settings(replace(state.settings_now, context=_POLICIES[choice]))
    policy = state.policy
    state.painter.note(f"when the context is full, {_POLICY_TEXTS[policy]} ({policy})")


def tokens(state: ChatState, _: str) -> None:
    """Count what the chat takes of the context."""
    branch = state.conversation.branch
    facts = state.facts
    n_ctx = facts.n_ctx if facts else None
    if not branch:
        room = f"the context has {n_ctx:,} tokens" if n_ctx else "nothing to count yet"
        state.painter.note(room)
        return
    work = WorkParameters(
        model=state.model or "default", system_prompt=state.settings_now.system_prompt
    )
    messages, attachments = conversation_of(state, branch, work, None)
    options = options_of(state)
    if attachments:
        options["attachments"] = attachments
    try:
        state.n_used = state.client.count_tokens(messages, **options)
    except ContextOverflow as overflow:
        state.n_used, n_ctx = overflow.prompt_tokens, overflow.n_ctx
    of = f" of {n_ctx:,}" if n_ctx else ""
    share = f", {state.n_used / n_ctx:.0%}" if n_ctx else ""
    state.painter.note(f"{state.n_used:,}{of} tokens{share}")
