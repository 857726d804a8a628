"""One answer: the daemon is asked with as much of the conversation as fits."""

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Final

import trio
from msgspec.structs import replace

from inferd.bridge.chats.content_filter import refusal
from inferd.bridge.chats.events import PendingEvent
from inferd.bridge.chats.parts import AnswerParts
from inferd.bridge.chats.question import (
    PartialAnswer,
    ToolOffer,
    question_of,
    summary_question,
)
from inferd.bridge.chats.running import RunningAnswer
from inferd.bridge.chats.tools.rounds import ToolRounds, tools_of
from inferd.bridge.chats.tools.servers import AnswerTools
from inferd.bridge.identity.caller import HttpCaller
from inferd.bridge.translation.failures import BridgeError, Reason, TokenOverflow
from inferd.bridge.translation.question import DaemonFrame, Question
from inferd.chats.branches import branch_to, unpassed_texts
from inferd.chats.estimate import DurationEstimate
from inferd.chats.fitting import (
    TokenExcess,
    cut_after,
    cut_files,
    earlier_cut,
    left_out,
    newest_turns,
    size_of,
)
from inferd.chats.records import (
    ChatRole,
    ContextPolicy,
    KeptChat,
    KeptMessage,
    LeftOut,
    WorkParameters,
)
from inferd.chats.storage.attachments import read_files
from inferd.chats.storage.chats import read_chat
from inferd.chats.storage.messages import read_messages
from inferd.limits.bridge import (
    MAX_ASKED_FILE_BYTES,
    MAX_FITTING_TRIES,
)
from inferd.limits.protocol import MAX_ATTACHMENTS
from inferd.wire.responses import ProgressFrame

_STARTING: Final = PendingEvent(phase="prefill")


class Generation:
    """Generates one answer."""

    def __init__(
        self,
        parts: AnswerParts,
        estimate: DurationEstimate,
        caller: HttpCaller,
        running: RunningAnswer,
    ) -> None:
        self._parts = parts
        self._estimate = estimate
        self._caller = caller
        self._running = running
        self._ends_at = trio.current_time() + parts.settings.answer_s
        self._began_at: float | None = None
        self._whole: KeptMessage | None = None
        """The answer, while its text is held back for the filter."""

    async def run(self) -> None:
        """Generate it within ``answer_s``, whatever it waits for.

        Raises:
            BridgeError: it failed.
            ChatError: the conversation cannot be read.
        """
        with trio.move_on_at(self._ends_at) as scope:
            await self._generate()
        if scope.cancelled_caught:
            raise _too_long()

    async def _generate(self) -> None:
        message = self._running.message
        work = message.details.work
        assert work is not None  # noqa: S101  # answers have it
        owner, chat_id = self._running.owner, message.chat_id
        chat = await self._parts.store.run(
            lambda connection: read_chat(connection, owner, chat_id)
        )
        messages = await self._parts.store.run(
            lambda connection: read_messages(connection, owner, chat_id)
        )
        branch = branch_to(messages, message.parent_id)
        policy = chat.settings.context or _policy(self._parts.settings.context)
        await self._check_prompts(work, branch)
        async with self._parts.tools.for_answer(owner) as servers:
            rounds = await self._rounds(chat, work, servers)
            while True:
                await self._fit(branch, work, policy, rounds.offer())
                if not await rounds.run_calls():
                    break
        await self._release()
        if self._began_at is not None:
            self._estimate.add(trio.current_time() - self._began_at)

    async def _check_prompts(
        self, work: WorkParameters, branch: Sequence[KeptMessage]
    ) -> None:
        """Have the filter look at what it has not let pass yet; raises as ``_check``."""
        texts = filter(None, (work.system_prompt, *unpassed_texts(branch)))
        if await self._check("prompter", "\n\n".join(texts)):
            message = self._running.message
            details = replace(message.details, has_passed=True)
            self._running.change(replace(message, details=details))

    async def _check(self, role: ChatRole, text: str) -> bool:
        """Have the filter look at a text, and note its word; tell whether it has read it.

        Raises:
            BridgeError: it refuses the text, or has failed.
        """
        word = await self._parts.content_filter.word_on(role, text, self._running.owner)
        if word is None:
            return self._parts.content_filter.reads(role)
        message = self._running.message
        words = [*message.details.filter_words, word]
        details = replace(message.details, filter_words=words)
        self._running.change(replace(message, details=details))
        if word.verdict == "refuse":
            raise refusal(word)
        return word.verdict == "mark"

    async def _release(self) -> None:
        """Show the text that was held back for the filter, once it has passed."""
        held = self._whole
        if held is not None:
            await self._check("assistant", f"{held.thinking}\n\n{held.text}".strip())
            shown = replace(
                self._running.message, text=held.text, thinking=held.thinking
            )
            self._running.change(shown)

    async def _rounds(
        self, chat: KeptChat, work: WorkParameters, servers: AnswerTools
    ) -> ToolRounds:
        """Find out which tools the answer may call; note which not, and why."""
        chosen = chat.settings.tool_servers
        names, notes = self._parts.tools.chosen(chosen), list[str]()
        if names and not await self._calls_tools(work.model):
            notes = [f"{work.model} calls no tools"] if chosen else []
            names = ()
        tools, faults = await tools_of(self._parts.tools, names)
        message = self._running.message
        if notes := [*notes, *faults]:
            details = replace(message.details, notes=notes)
            self._running.change(replace(message, details=details))
        return ToolRounds(self._parts.store, self._running, tools, servers)

    async def _calls_tools(self, model: str) -> bool:
        """Tell whether a model calls tools; one of which that is not known is asked."""
        for offered in await self._parts.daemon.models():
            if offered.name == model and offered.facts is not None:
                facts = offered.facts
                return facts.is_unread is True or facts.tools
        return True

    async def _fit(
        self,
        branch: Sequence[KeptMessage],
        work: WorkParameters,
        policy: ContextPolicy,
        offer: ToolOffer,
    ) -> None:
        """Ask with all of a conversation, or with what fits of it."""
        cut = None if policy == "refuse" else earlier_cut(branch)
        n_least = cut_files(branch, cut.n_left_out if cut else 0)
        if n_least > (cut.n_left_out if cut else 0):
            if policy == "refuse":
                raise BridgeError(
                    Reason.CHAT_LIMIT,
                    f"the conversation has over {MAX_ATTACHMENTS} pictures and recordings, or "
                    f"{MAX_ASKED_FILE_BYTES} bytes of them: begin another chat",
                )
            cut = await self._cut(branch, work, policy, cut, more=n_least)
        for n_tries_left in reversed(range(MAX_FITTING_TRIES)):
            self._note_cut(cut)
            try:
                await self._ask_with(branch, work, cut, offer)
            except BridgeError as error:
                n_left_out = cut.n_left_out if cut else 0
                more = _cut_for(error, branch, n_left_out)
                if policy == "refuse" or more is None or not n_tries_left:
                    raise
                cut = await self._cut(
                    branch, work, policy, cut, more=more, overflow=error.overflow
                )
            else:
                return

    async def _cut(  # noqa: PLR0913  # what a cut is decided by
        self,
        branch: Sequence[KeptMessage],
        work: WorkParameters,
        policy: ContextPolicy,
        cut: LeftOut | None,
        *,
        more: int,
        overflow: TokenOverflow | None = None,
    ) -> LeftOut | None:
        """Leave out more of a conversation than before, summarised where that is wanted."""
        if policy != "summarise":
            return left_out(branch, more)
        n_left_out = cut.n_left_out if cut else 0
        share = 0.5
        if overflow is not None:
            share = overflow.n_ctx / 2 / max(overflow.n_tokens, 1)
        new = newest_turns(branch[n_left_out:more], branch[n_left_out:], share)
        summary = await self._summarise(new, work, cut.summary if cut else None)
        return left_out(branch, more, summary)

    def _note_cut(self, cut: LeftOut | None) -> None:
        message = self._running.message
        if cut != message.details.left_out:
            details = replace(message.details, left_out=cut)
            self._running.change(replace(message, details=details))

    async def _ask_with(
        self,
        branch: Sequence[KeptMessage],
        work: WorkParameters,
        cut: LeftOut | None,
        offer: ToolOffer,
    ) -> None:
        kept = branch[cut.n_left_out :] if cut else branch
        attached = [each for message in kept for each in message.attachments]
        with self._holding(sum(each.n_bytes for each in attached)):
            question, answer = question_of(
                branch,
                work,
                cut,
                await self._files([each.id for each in attached]),
                so_far=self._so_far(),
                offer=offer,
                request_id=_request_id(),
                max_tokens=self._parts.default_max_tokens,
                deadline_ms=self._left_ms(),
            )
            n_chars = sum(size_of(each) for each in kept)
            await self._ask(question, answer, n_chars, shows=True)

    def _so_far(self) -> KeptMessage:
        """Return the answer with the text that is held back."""
        message, held = self._running.message, self._whole
        if held is None:
            return message
        return replace(message, text=held.text, thinking=held.thinking)

    @contextmanager
    def _holding(self, n_bytes: int) -> Iterator[None]:
        """Hold the bytes of files inside.

        Raises:
            BridgeError: the owner's answers, or all, hold too many.
        """
        held, owner = self._parts.held, self._running.owner
        if not held.take(owner, n_bytes):
            raise BridgeError(
                Reason.QUEUE_FULL,
                "too many pictures and recordings at once: try again in a moment",
            )
        try:
            yield
        finally:
            held.give_back(owner, n_bytes)

    async def _files(self, ids: Sequence[str]) -> Mapping[str, bytes]:
        """Read files of the chat."""
        if not ids:
            return {}
        owner, chat_id = self._running.owner, self._running.message.chat_id
        return await self._parts.store.run(
            lambda connection: read_files(connection, owner, chat_id, ids)
        )

    async def _summarise(
        self,
        turns: Sequence[KeptMessage],
        work: WorkParameters,
        earlier: str | None,
    ) -> str:
        question, answer = summary_question(
            turns,
            work,
            earlier,
            request_id=_request_id(),
            deadline_ms=self._left_ms(),
        )
        n_chars = sum(len(each.text) for each in turns)
        await self._ask(question, answer, n_chars, shows=False)
        return answer.text.strip()

    async def _ask(
        self, question: Question, answer: PartialAnswer, n_chars: int, *, shows: bool
    ) -> None:
        """Ask the daemon; count what it costs."""
        n_answer = getattr(question.request, "max_tokens", None) or 0
        callers, principal = self._parts.callers, self._running.owner
        try:
            with callers.spending(
                self._caller, n_chars + n_answer, lambda: answer.n_tokens
            ):
                batches = self._parts.daemon.ask(
                    question.passed_on_by(self._running.via), principal
                )
                async with aclosing(batches):
                    async for frames in batches:
                        self._take(frames, answer, shows=shows)
        finally:
            self._parts.count_tokens(answer.n_tokens, principal)

    def _take(
        self, frames: Sequence[DaemonFrame], answer: PartialAnswer, *, shows: bool
    ) -> None:
        pending = None
        for frame in frames:
            if isinstance(frame, ProgressFrame):
                pending = self._pending(frame)
            for _ in answer.add(frame):
                pass
        if self._began_at is None and (pending is None or pending.phase != "queued"):
            self._began_at = trio.current_time()
        if not shows:
            self._running.change(pending=pending)
            return
        message = answer.applied_to(self._running.message)
        if message.text or message.thinking or message.details.calls:
            message = replace(message, state="in_progress")
        if self._parts.content_filter.reads("assistant"):
            self._whole = message
            message = replace(message, text="", thinking="")
        self._running.change(message, pending)

    def _pending(self, frame: ProgressFrame) -> PendingEvent:
        match frame:
            case ProgressFrame(status="queued", position=int(position)):
                estimate_s = self._estimate.of(position)
                return PendingEvent(queue_position=position, estimate_s=estimate_s)
            case ProgressFrame(processed=int(processed), total=int(total)):
                return replace(_STARTING, processed=processed, total=total)
            case _:
                return PendingEvent(phase=frame.status)

    def _left_ms(self) -> int:
        left_s = self._ends_at - trio.current_time()
        if left_s <= 0:
            raise _too_long()
        return math.ceil(left_s * 1000)


def _too_long() -> BridgeError:
    return BridgeError(Reason.DEADLINE, "the answer took too long")


def _request_id() -> str:
    return f"chat_{secrets.token_hex(12)}"


def _policy(word: str) -> ContextPolicy:
    return (
        "summarise" if word == "summarise" else "omit" if word == "omit" else "refuse"
    )


def _cut_for(
    error: BridgeError, branch: Sequence[KeptMessage], n_left_out: int
) -> int | None:
    """Return how many messages to leave out after a failure; ``None`` if that helps nothing."""
    found = error.overflow
    if found is None:
        return None
    overflow = TokenExcess(found.n_tokens, found.n_ctx, found.n_over)
    return cut_after(branch, n_left_out, overflow)
