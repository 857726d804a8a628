"""Render prompts with the model's own template or the dialect's renderer.

A model was trained with its template, so the template is preferred. But many templates do
not support tools, system turns, or two turns of one role in a row, and most omit silently
what they do not support. So support is probed: a template renders samples, and its output
is searched for their words.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from inferd.backend.job import GenerateJob, ToolSpec, Turn
from inferd.dialects.dialect import Dialect
from inferd.dialects.families.generic import GENERIC
from inferd.dialects.prompt.special_tokens import SpecialTokens, SpecialTokenTexts
from inferd.dialects.prompt.template import ChatTemplate, TemplateError
from inferd.dialects.prompt.template_caps import SAMPLE, probe_template
from inferd.dialects.prompt.token_escape import TokenEscape
from inferd.limits.prompts import SPECIAL_TOKENS_PER_PIECE

_NO_TOKENS: Final = SpecialTokenTexts()


class RenderedPrompt(NamedTuple):
    """A rendered prompt, split into pieces to tokenise separately."""

    pieces: tuple[str, ...]
    """The text, cut inside special tokens that a client's text spells, so that they stay
    text; and before some of the template's own special tokens if there are many."""
    open_thought: str = ""
    """Begin marker of the thought that the prompt ends inside, if any; the answer continues
    it."""

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)


class PromptFeatures(NamedTuple):
    """Features that a model supports in requests."""

    tools: bool
    """Always true: tools that the template does not support are rendered as text."""
    thinks: bool


class PromptRenderer:
    """Renderer of the prompts of one model.

    Args:
        template: of the model; ``None`` if it is not to be used.
        dialect: of the model's family.
        tokens: texts of special tokens, which clients must not be caps to write.
    """

    def __init__(
        self,
        template: ChatTemplate | None,
        dialect: Dialect,
        tokens: SpecialTokenTexts = _NO_TOKENS,
    ) -> None:
        self.dialect = dialect
        """The dialect of the model's family."""
        self._template = template
        self._caps = None if template is None else probe_template(template)
        self.has_usable_template = template is None or self._caps is not None
        """Whether the template, if there is one, renders user turns."""
        self._is_familiar = template is not None and dialect.recognises(
            "", template.source
        )
        self.features = PromptFeatures(tools=True, thinks=self._thinks())
        """Features that the model supports."""
        samples = "\n".join(self._samples())
        used = (token for token in tokens.where_used if token in samples)
        self._special_tokens = SpecialTokens([*tokens.always, *used])
        self._thoughts = SpecialTokens(self.thought_markers)

    def warm_up(self) -> None:
        """Build caches now that would otherwise be built for the first prompt."""
        self._special_tokens.warm_up()
        self._thoughts.warm_up()

    def _thinks(self) -> bool:
        """Return whether answers may contain thoughts, by the template or the dialect."""
        if self._template is None or self._caps is None:
            return bool(self.dialect.thoughts)
        source = self._template.source
        markers = self.thought_markers
        known = any(each in source for each in markers)
        return bool(markers) and (self._caps.toggles_thinking or known)

    @property
    def thought_markers(self) -> list[str]:
        """Begin and end markers of thoughts, without white space; the longest first."""
        markers = {
            marker.strip()
            for each in self.dialect.thoughts
            for marker in (*each.begins, *each.ends)
        }
        return sorted(markers - {""}, key=len, reverse=True)

    def _samples(self) -> Iterator[str]:
        """Return texts that contain all special tokens of template and renderer."""
        yield from self.dialect.markers
        for thinks in (False, True):
            yield self.dialect.render(*SAMPLE, thinks)
        if self._template is not None:
            yield self._template.source

    def render(self, job: GenerateJob) -> RenderedPrompt:
        """Render the prompt of a job, up to the assistant's turn.

        Raises:
            TemplateError: the template failed and the family is unknown.
            TokenEscapeError: the conversation spells too many special tokens.
        """
        dialect = self.dialect
        tools = () if job.tool_choice.kind == "none" else job.tools
        escape, rendered = self._render_escaped(job.turns, tools, thinks=job.thinks)
        own = self._without_thoughts(rendered, job.turns, tools, thinks=job.thinks)
        if dialect.open_thought(own) and not job.thinks:
            rendered += dialect.close_thought
            own += dialect.close_thought
        pieces = tuple(
            part
            for piece in escape.unescape(rendered)
            for part in self._special_tokens.split_every(
                piece, SPECIAL_TOKENS_PER_PIECE
            )
        )
        return RenderedPrompt(pieces, dialect.open_thought(own))

    def _without_thoughts(
        self,
        rendered: str,
        turns: Sequence[Turn],
        tools: Sequence[ToolSpec],
        *,
        thinks: bool,
    ) -> str:
        """Render a prompt again with thought markers of clients escaped, if needed.

        Only then does an open thought at its end come from the template. Markers of clients
        are not escaped before if the vocabulary has no tokens for them, or if they are
        spared.
        """
        if not self.dialect.open_thought(rendered):
            return rendered
        hidden = TokenEscape(self._thoughts, turns, tools)
        if not hidden.is_needed:
            return rendered
        return self._render_text(hidden.turns, hidden.tools, thinks=thinks)

    def _render_escaped(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], *, thinks: bool
    ) -> tuple[TokenEscape, str]:
        """Render a prompt in which special tokens spelled by clients are escaped.

        Some templates search the assistant's turns for thought markers and omit the
        thoughts. With such a template, thought markers there are not escaped.
        """
        escape = TokenEscape(self._special_tokens, turns, tools)
        rendered = self._render_text(escape.turns, escape.tools, thinks=thinks)
        markers = self.thought_markers
        if not escape.is_needed or not any(
            marker in turn.text for turn in turns for marker in markers
        ):
            return escape, rendered
        spared = TokenEscape(self._special_tokens, turns, tools, markers)
        try:
            other = self._by_template(spared.turns, spared.tools, thinks=thinks)
        except TemplateError:
            other = None
        if other is None or _same(spared.unescape(other), escape.unescape(rendered)):
            return escape, rendered
        return spared, other

    def _render_text(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], *, thinks: bool
    ) -> str:
        try:
            rendered = self._by_template(turns, tools, thinks=thinks)
        except TemplateError:
            if not self._is_familiar:
                raise
            rendered = None
        return (
            self.dialect.render(turns, tools, thinks) if rendered is None else rendered
        )

    def _by_template(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], *, thinks: bool
    ) -> str | None:
        """Render with the template; return ``None`` if it does not support the request.

        For an unknown family, the template's format of calls is not used: the calls that
        the model would generate could not be parsed.
        """
        template, caps = self._template, self._caps
        if (
            template is None
            or caps is None
            or (thinks and not caps.can_toggle_thinking(turns))
        ):
            return None
        if self.dialect is GENERIC or not caps.supports(turns, tools):
            if self.dialect.tools_as_text is None:
                return None
            turns, tools = self.dialect.tools_as_text(turns, tools), ()
        fitted = caps.adapted(turns)
        return template.render(fitted, tools, thinks=thinks, wants=caps.input)


def _same(pieces: Iterable[str], others: Iterable[str]) -> bool:
    return "".join(pieces) == "".join(others)
