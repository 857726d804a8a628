"""The operator's program that may refuse or mark texts of prompts and answers."""

from collections.abc import Awaitable, Callable
from typing import Final, Literal

import msgspec
import trio
from msgspec import Struct

from inferd.bridge.chats.tools.confined import ConfinedProcess, confined
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.chats.records import FilterWord
from inferd.config.filters import MAX_FILTER_BYTES, MAX_FILTERS, FilterSettings
from inferd.fair_limiter import FairLimiter

TextRole = Literal["prompter", "assistant"]
RunProgram = Callable[[FilterSettings, bytes], Awaitable[bytes]]


class FilterFaultError(Exception):
    """The program did not do as it should; its text says how."""


class FilterVerdict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the program says of a text."""

    verdict: Literal["pass", "mark", "refuse"]
    label: str = ""
    """A short word for why."""
    reason: str = ""
    """A sentence for people."""
    level: int | None = None
    """How grave it is, by the program's own measure."""


class _FilterQuestion(Struct, frozen=True, kw_only=True):
    """What the program reads."""

    role: TextRole
    text: str


_VERDICT: Final = msgspec.json.Decoder(FilterVerdict)
_SHOWN_CHARS: Final = 500
"""Characters of a label or a reason that are kept."""


class ContentFilter:
    """Asks the program about texts, in a process each.

    Args:
        settings: of the program; ``None`` lets all pass.
        run: runs it: given the settings and its input, returns its output.

    Bounds:
        ``MAX_FILTERS`` processes at once, all but one at most for one user.
    """

    def __init__(
        self, settings: FilterSettings | None, run: RunProgram | None = None
    ) -> None:
        self._settings = settings
        self._run = run or run_filter
        self._limiter = FairLimiter(MAX_FILTERS)

    def reads(self, role: TextRole) -> bool:
        """Tell whether texts of a role are looked at."""
        if self._settings is None:
            return False
        return self._settings.prompts if role == "prompter" else self._settings.answers

    async def word_on(self, role: TextRole, text: str, user: str) -> FilterWord | None:
        """Return what the program says of a text; ``None`` where that is nothing.

        Raises:
            BridgeError: it failed, and nothing passes without it.
        """
        if self._settings is None or not self.reads(role) or not text:
            return None
        try:
            verdict = await self._verdict(self._settings, role, text, user)
        except FilterFaultError as error:
            if self._settings.on_failure == "refuse":
                raise BridgeError(
                    Reason.FILTER_FAILED,
                    f"the filter of this service failed, and nothing passes without it: {error}",
                ) from error
            return FilterWord(of=role, verdict="missing", reason=str(error))
        if verdict.verdict == "pass":
            return None
        return FilterWord(
            of=role,
            verdict=verdict.verdict,
            label=_shown(verdict.label),
            reason=_shown(verdict.reason),
            level=verdict.level,
        )

    async def _verdict(
        self, settings: FilterSettings, role: TextRole, text: str, user: str
    ) -> FilterVerdict:
        asked = msgspec.json.encode(_FilterQuestion(role=role, text=text)) + b"\n"
        said = b""
        async with self._limiter.acquire(user):
            with trio.move_on_after(settings.limit_s) as scope:
                said = await self._run(settings, asked)
        if scope.cancelled_caught:
            raise FilterFaultError(f"it takes over {settings.limit_s:g} s")
        try:
            return _VERDICT.decode(said)
        except msgspec.DecodeError as error:
            text = "it has ended without a word" if not said else "it said no verdict"
            raise FilterFaultError(text) from error


async def run_filter(settings: FilterSettings, asked: bytes) -> bytes:
    """Run the program with an input; return its output.

    Raises:
        FilterFaultError: it cannot be started, or says too much.
    """
    try:
        async with confined(settings.command, settings) as process:
            said = bytearray()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_feed, process, asked)
                async for part in process.said:
                    said += part
                    if len(said) > MAX_FILTER_BYTES:
                        break
                nursery.cancel_scope.cancel()
    except OSError as error:
        raise FilterFaultError(f"it cannot be started: {error.strerror}") from error
    if len(said) > MAX_FILTER_BYTES:
        raise FilterFaultError(f"it said over {MAX_FILTER_BYTES} bytes")
    return bytes(said)


async def _feed(process: ConfinedProcess, asked: bytes) -> None:
    """Send the input, of which the program may read as much as it likes."""
    try:
        await process.asked.send_all(asked)
        await process.asked.aclose()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


def _shown(text: str) -> str:
    """Return a text on one line, without control characters."""
    kept = text[:_SHOWN_CHARS]
    return "".join(each if each.isprintable() else " " for each in kept)


def refusal(word: FilterWord) -> BridgeError:
    """Return the failure of an answer that was refused, or whose prompt was."""
    what = "message" if word.of == "prompter" else "answer"
    why = word.reason or word.label or "it gave no reason"
    return BridgeError(
        Reason.CONTENT_REFUSED, f"the filter of this service refused the {what}: {why}"
    )
