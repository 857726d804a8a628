"""One answer: asked with as much of the chat as fits, drawn and kept while it comes."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from inferd.chats.fitting import (
    TokenExcess,
    cut_after,
    cut_files,
    earlier_cut,
    left_out,
    newest_turns,
)
from inferd.chats.prompt import summary_messages
from inferd.chats.records import (
    AnswerUsage,
    KeptMessage,
    LeftOut,
    MessageDetails,
    StoredCall,
    WorkParameters,
)
from inferd.cli.chat.asking import AnswerEnd, Interrupts, follow
from inferd.cli.chat.conversation import broken_off, new_message
from inferd.cli.chat.faults import advice_for
from inferd.cli.chat.questions import conversation_of, options_of
from inferd.cli.chat.screen.answer_view import AnswerView
from inferd.cli.chat.state import ChatState, new_id, now_us
from inferd.client.core.answer import (
    Event,
    FinalAnswer,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
)
from inferd.client.core.conversation import ChatOptions
from inferd.client.core.failures import ClientError, ContextOverflow
from inferd.client.library.streams import ChatStream
from inferd.client.media.errors import MediaError, MissingExtraError
from inferd.limits.bridge import MAX_FITTING_TRIES, SUMMARY_TOKENS

_MARKS: Final = {
    "max_tokens": "(cut at the most tokens an answer may have: --max-tokens)",
    "cancelled": "(stopped; /regenerate asks again)",
    "error": "(broken off by the daemon; /regenerate asks again)",
}
"""Why an answer ends that has not come to its own end."""


class Answerer:
    """Has prompts of a session answered."""

    def __init__(self, state: ChatState) -> None:
        self._state = state
        self._view = AnswerView(state.painter, state.estimate)
        self._answer_id = ""

    def answer(self, prompt: KeptMessage) -> None:
        """Have a prompt answered that the chat has."""
        state = self._state
        self._view = AnswerView(state.painter, state.estimate)
        state.painter.keep_pastes_whole()
        with Interrupts() as interrupts:
            try:
                self._fit(prompt, interrupts)
            except (ClientError, MediaError, MissingExtraError) as error:
                self._tell(error)
        if state.facts is None or state.facts.n_ctx is None:
            state.look_up()  # it was not loaded before

    def _tell(self, error: Exception) -> None:
        self._view.end()
        painter = self._state.painter
        painter.note(f"error: {error}", "red")
        if advice := advice_for(error):
            painter.note(advice, "dim")

    # --- what fits ----------------------------------------------------------------------

    def _fit(self, prompt: KeptMessage, interrupts: Interrupts) -> None:
        """Ask with all of the chat, or with what fits of it."""
        state, policy = self._state, self._state.policy
        branch = state.conversation.branch
        branch = branch[: branch.index(prompt) + 1]
        cut = None if policy == "refuse" else earlier_cut(branch)
        n_least = cut_files(branch, cut.n_left_out if cut else 0)
        if policy != "refuse" and n_least > (cut.n_left_out if cut else 0):
            cut = left_out(branch, n_least)
        for n_tries_left in reversed(range(MAX_FITTING_TRIES)):
            try:
                self._ask(prompt, branch, cut, interrupts)
            except ContextOverflow as overflow:
                excess = TokenExcess(
                    overflow.prompt_tokens, overflow.n_ctx, overflow.tokens_over
                )
                more = cut_after(branch, cut.n_left_out if cut else 0, excess)
                if policy == "refuse" or more is None or not n_tries_left:
                    raise
                cut = self._cut(branch, cut, more, excess, interrupts)
            else:
                return

    def _cut(
        self,
        branch: Sequence[KeptMessage],
        cut: LeftOut | None,
        more: int,
        excess: TokenExcess,
        interrupts: Interrupts,
    ) -> LeftOut | None:
        """Leave out more than before, and say so."""
        is_summed = self._state.policy == "summarise"
        done = "summarised" if is_summed else "left out from here on"
        painter = self._state.painter
        painter.finish([""])
        painter.note(
            f"(the context is full: the oldest {more} messages are {done}; /context "
            "chooses)"
        )
        if not is_summed:
            return left_out(branch, more)
        before = cut.n_left_out if cut else 0
        share = excess.n_ctx / 2 / max(excess.n_tokens, 1)
        turns = newest_turns(branch[before:more], branch[before:], share)
        summary = self._summary(turns, cut.summary if cut else None, interrupts)
        return left_out(branch, more, summary)

    def _summary(
        self,
        turns: Sequence[KeptMessage],
        earlier: str | None,
        interrupts: Interrupts,
    ) -> str:
        """Have turns summarised, unless Ctrl-C says otherwise."""
        options = options_of(self._state)
        options |= ChatOptions(temperature=0, max_tokens=SUMMARY_TOKENS, progress=True)
        asked = summary_messages(turns, earlier)
        stream = self._state.client.stream(asked, **options)
        stop = self._stop_of(stream)
        end = follow(stream, self._view.summarising, stop, interrupts)
        if end.answer is None:
            raise end.error or ClientError("the summary has no end")
        if interrupts.n_pressed:
            raise ClientError("stopped before the answer began")
        return end.answer.text.strip()

    def _stop_of(self, stream: ChatStream) -> Callable[[int], None]:
        """Return what ends a stream: politely, then by leaving the daemon."""

        def stop(n_pressed: int) -> None:
            self._view.stopping()
            if not stream.cancel() and n_pressed > 1:
                self._state.reconnect()

        return stop

    def _work(self) -> WorkParameters:
        state = self._state
        facts = state.facts
        return WorkParameters(
            model=state.model or (facts.name if facts else "default"),
            sampling=state.sampling,
            system_prompt=state.conversation.chat.settings.system_prompt,
            thinking=state.thinking,
        )

    # --- asking -------------------------------------------------------------------------

    def _ask(
        self,
        prompt: KeptMessage,
        branch: Sequence[KeptMessage],
        cut: LeftOut | None,
        interrupts: Interrupts,
    ) -> None:
        state, work = self._state, self._work()
        stream = self._stream(branch, work, cut)
        answer = new_message(
            state.conversation,
            message_id=new_id(),
            now_us=now_us(),
            parent_id=prompt.id,
            is_prompt=False,
            details=MessageDetails(work=work, left_out=cut),
        )
        self._answer_id = ""

        def show(events: Sequence[Event]) -> None:
            self._show(answer, events)

        began_s = time.monotonic()
        end = follow(stream, show, self._stop_of(stream), interrupts)
        if end.error is None:
            state.estimate.add(time.monotonic() - began_s)
        self._end(end)

    def _stream(
        self, branch: Sequence[KeptMessage], work: WorkParameters, cut: LeftOut | None
    ) -> ChatStream:
        state = self._state
        messages, attachments = conversation_of(state, branch, work, cut)
        options = options_of(state)
        options["progress"] = True
        if attachments:
            options["attachments"] = attachments
        return state.client.stream(messages, **options)

    def _show(self, answer: KeptMessage, events: Sequence[Event]) -> None:
        """Keep what has come, and draw it."""
        state = self._state
        text = "".join(each.text for each in events if isinstance(each, TextEvent))
        thoughts = "".join(
            each.text for each in events if isinstance(each, ThinkingEvent)
        )
        calls = [each for each in events if isinstance(each, ToolCallEvent)]
        if not self._answer_id and (text or thoughts or calls):
            self._answer_id = answer.id
            state.keep_last(answer)
        state.grow(answer.id, text, thoughts)
        self._view.add(events)

    def _end(self, end: AnswerEnd) -> None:
        """Keep how an answer has ended, and draw it.

        Raises:
            ClientError: it has failed.
        """
        state = self._state
        begun = state.conversation.messages.get(self._answer_id)
        if end.answer is None:
            error = end.error or ClientError("the answer has no end")
            if begun is not None:
                state.keep(broken_off(begun, str(error)))
                self._view.end("(broken off)")
            if isinstance(error, OSError):
                raise ClientError(str(error)) from error
            raise error
        if begun is not None:
            state.keep(ended(begun, end.answer))
        usage = end.answer.usage
        state.n_used = usage.input_tokens + usage.output_tokens
        self._view.end(self._mark(end.answer.stop_reason))
        timing = end.answer.timing
        state.speed = (timing.tokens_per_second or None) if timing else None

    def _mark(self, stop_reason: str) -> str:
        """Say why an answer has ended that has not come to its own end."""
        facts, n_used = self._state.facts, self._state.n_used or 0
        is_full = bool(facts and facts.n_ctx and n_used >= facts.n_ctx)
        if stop_reason == "max_tokens" and is_full:
            return "(cut: the context is full; the next prompt makes room)"
        return _MARKS.get(stop_reason, "")


def ended(message: KeptMessage, answer: FinalAnswer) -> KeptMessage:
    """Return an answer with how it ended."""
    calls = [
        StoredCall(each.id, each.name, each.arguments, at=len(message.text))
        for each in answer.tool_calls
    ]
    usage = answer.usage
    work = message.details.work
    details = replace(
        message.details,
        work=replace(work, model=answer.model) if work else None,
        usage=AnswerUsage(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens
        ),
        calls=calls,
        finish_reason=answer.stop_reason,
    )
    is_whole = answer.stop_reason not in ("cancelled", "error")
    state = "complete" if is_whole else "cancelled"
    return replace(message, state=state, details=details)
