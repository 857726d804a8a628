"""Choose who writes a prompt: the model's own template, or the dialect's renderer.

A model was trained with its template, so that comes first. But many templates know
nothing of tools, of system turns, or of two turns of one role in a row, and most leave
out without a word what they do not know. So it is found out by trying: words are given
to a template, and looked for in what it writes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from inferd.dialects.dialect import Dialect
from inferd.dialects.generic import GENERIC
from inferd.dialects.inert import Disguise
from inferd.dialects.repertoire import SAMPLE, repertoire_of
from inferd.dialects.spellings import Spellings, TokenTexts
from inferd.dialects.template import ChatTemplate, TemplateError
from inferd.job import GenerateJob, Tool, Turn
from inferd.limits import TOKENS_IN_PIECE

_NO_TOKENS: Final = TokenTexts()


class Rendered(NamedTuple):
    """A prompt."""

    pieces: tuple[str, ...]
    """Its text, cut where that keeps a client's text from being a special token; and
    where there are many of the template's own, before some of these."""
    open_thought: str = ""
    """The marker of the thought that it ends inside, if any: the answer goes on there."""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.pieces)


class Abilities(NamedTuple):
    """What can be asked of a model."""

    tools: bool
    """Of any: what its template has no words for is said in other ways."""
    thinks: bool


class Prompts:
    """Writes the prompts of one model.

    Args:
        template: that it carries; nothing if it is not to be used.
        dialect: of its family.
        tokens: texts of its special tokens, which no client can write.
    """

    def __init__(
        self,
        template: ChatTemplate | None,
        dialect: Dialect,
        tokens: TokenTexts = _NO_TOKENS,
    ) -> None:
        self.dialect = dialect
        """As it was given."""
        self._template = template
        self._able = None if template is None else repertoire_of(template)
        self.is_sound = template is None or self._able is not None
        """Whether the template, if there is one, says what a user asks."""
        self._is_familiar = template is not None and dialect.recognises(
            "", template.source
        )
        self.abilities = Abilities(tools=True, thinks=self._thinks())
        """What can be asked of the model."""
        written = "\n".join(self._written())
        used = (each for each in tokens.where_used if each in written)
        self._spellings = Spellings([*tokens.always, *used])
        self._thoughts = Spellings(self.thought_markers)

    def warm_up(self) -> None:
        """Make now what is made for the first prompt that needs it otherwise."""
        self._spellings.warm_up()
        self._thoughts.warm_up()

    def _thinks(self) -> bool:
        """Whether answers may hold thoughts: as the template tells, else the dialect."""
        if self._template is None or self._able is None:
            return bool(self.dialect.thoughts)
        source = self._template.source
        markers = self.thought_markers
        known = any(each in source for each in markers)
        return bool(markers) and (self._able.switches_thought or known)

    @property
    def thought_markers(self) -> list[str]:
        """What opens and closes thoughts, without white space; the longest first."""
        markers = {
            marker.strip()
            for each in self.dialect.thoughts
            for marker in (*each.begins, *each.ends)
        }
        return sorted(markers - {""}, key=len, reverse=True)

    def _written(self) -> Iterator[str]:
        """Give texts with all that a template or a renderer writes."""
        yield from self.dialect.markers
        for thinks in (False, True):
            yield self.dialect.render(*SAMPLE, thinks)
        if self._template is not None:
            yield self._template.source

    def render(self, job: GenerateJob) -> Rendered:
        """Write the prompt of a job, up to where the assistant speaks.

        Raises:
            TemplateError: the template refuses, and nobody knows the family.
            SpelledError: its texts spell too many special tokens.
        """
        dialect = self.dialect
        tools = () if job.tool_choice.kind == "none" else job.tools
        disguise, written = self._disguised(job.turns, tools, thinks=job.thinks)
        own = self._without_thoughts(written, job.turns, tools, thinks=job.thinks)
        if dialect.open_thought(own) and not job.thinks:
            written += dialect.no_thought
            own += dialect.no_thought
        pieces = tuple(
            part
            for piece in disguise.reveal(written)
            for part in self._spellings.parted(piece, TOKENS_IN_PIECE)
        )
        return Rendered(pieces, dialect.open_thought(own))

    def _without_thoughts(
        self,
        written: str,
        turns: Sequence[Turn],
        tools: Sequence[Tool],
        *,
        thinks: bool,
    ) -> str:
        """Give a prompt that may end inside a thought without what clients open.

        Their markers may stand in it as they wrote them: the vocabulary may have no
        tokens for them, or they were spared.
        """
        if not self.dialect.open_thought(written):
            return written
        hidden = Disguise(self._thoughts, turns, tools)
        if not hidden.is_needed:
            return written
        return self._text(hidden.turns, hidden.tools, thinks=thinks)

    def _disguised(
        self, turns: Sequence[Turn], tools: Sequence[Tool], *, thinks: bool
    ) -> tuple[Disguise, str]:
        """Write a prompt without the special tokens that its texts spell.

        Some templates look for the markers of thoughts in what the assistant said, and
        leave the thoughts out. Where one does, the markers there stay as they are.
        """
        disguise = Disguise(self._spellings, turns, tools)
        written = self._text(disguise.turns, disguise.tools, thinks=thinks)
        markers = self.thought_markers
        if not disguise.is_needed or not any(
            marker in turn.text for turn in turns for marker in markers
        ):
            return disguise, written
        spared = Disguise(self._spellings, turns, tools, markers)
        try:
            other = self._by_template(spared.turns, spared.tools, thinks=thinks)
        except TemplateError:
            other = None
        if other is None or _same(spared.reveal(other), disguise.reveal(written)):
            return disguise, written
        return spared, other

    def _text(
        self, turns: Sequence[Turn], tools: Sequence[Tool], *, thinks: bool
    ) -> str:
        try:
            written = self._by_template(turns, tools, thinks=thinks)
        except TemplateError:
            if not self._is_familiar:
                raise
            written = None
        return self.dialect.render(turns, tools, thinks) if written is None else written

    def _by_template(
        self, turns: Sequence[Turn], tools: Sequence[Tool], *, thinks: bool
    ) -> str | None:
        """Have the template write, if it can say what is asked.

        Where nobody knows the family its words for calls are of no use: what it would
        have the model write, nobody could read.
        """
        template, able = self._template, self._able
        if template is None or able is None or (thinks and not able.can_switch(turns)):
            return None
        if self.dialect is GENERIC or not able.can_say(turns, tools):
            if self.dialect.in_plain_turns is None:
                return None
            turns, tools = self.dialect.in_plain_turns(turns, tools), ()
        fitted = able.fitted(turns)
        return template.render(fitted, tools, thinks=thinks, wants=able.wants)


def _same(pieces: Iterable[str], others: Iterable[str]) -> bool:
    return "".join(pieces) == "".join(others)
