"""Render a request's prompt, and build and check its answer's grammar."""

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from llguidance import LLMatcher, LLTokenizer

from inferd.backend.job import GenerateJob, RenderedJob, Sampling, Structure
from inferd.dialects.prompt.renderer import PromptRenderer
from inferd.dialects.prompt.template import TemplateError
from inferd.dialects.prompt.token_escape import TokenEscapeError
from inferd.dialects.step_limit import (
    TooMuchWorkError,
    limited_steps,
    max_prompt_chars,
    max_steps,
)
from inferd.limits.prompts import PROMPT_ITEM_CHARS
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.build import (
    ALL_FIELDS,
    Grammar,
    answer_grammar,
    grammar_of,
    may_be_call_or_text,
    refuse_end_tokens,
    refuse_tool_names,
)
from inferd.worker.llama.grammar.checker import GrammarChecker
from inferd.worker.llama.grammar.compiler import matcher_of
from inferd.worker.llama.prepare.model_info import TokenTable

_SAMPLES = (
    Structure(kind="regex", source="[a-z]+"),
    Structure(
        kind="json_schema",
        source='{"type": "object", "properties": {"a": {"type": "string"}}}',
    ),
)
_SPELLINGS = 3
"""Most call openings that are checked against a structure, which takes milliseconds each."""


def write_prompt(prompts: PromptRenderer, job: GenerateJob) -> RenderedJob:
    """Render a job's prompt.

    Raises:
        RefusedError: the template refuses, the family's call syntax cannot hold a tool's
            name, the client's text holds too many special tokens, or the prompt is much
            longer than the request.
    """
    refuse_tool_names(prompts.dialect, job)
    try:
        with limited_steps(max_steps(source_chars(job))):
            rendered = prompts.render(job)
    except (TemplateError, TokenEscapeError) as error:
        raise RefusedError(str(error)) from error
    except TooMuchWorkError as error:
        raise RefusedError(f"tools: {error}") from error
    _refuse_more(rendered.pieces, job)
    return RenderedJob(pieces=rendered.pieces, open_thought=rendered.open_thought)


def _refuse_more(pieces: Sequence[str], job: GenerateJob) -> None:
    """Refuse a prompt that is much longer than its request, since decoding it is costly."""
    n_chars, most = sum(map(len, pieces)), max_prompt_chars(source_chars(job))
    if n_chars > most:
        raise RefusedError(
            f"{'tools' if job.tools else 'messages'}: they make a prompt of {n_chars} "
            f"characters, at most {most} are allowed for what was sent"
        )


class GrammarWriter:
    """Builder of checked grammars for one model's answers.

    Args:
        prompts: the model's prompt renderer.
        token_table: the model's vocabulary.
        tokenizer: the tokenizer built from it.
    """

    def __init__(
        self, prompts: PromptRenderer, token_table: TokenTable, tokenizer: LLTokenizer
    ) -> None:
        self._dialect = prompts.dialect
        self._token_table = token_table
        self._tokenizer = tokenizer

    def warm_up(self) -> None:
        """Fill caches that the first jobs would fill, so that all forks share them."""
        for structure in _SAMPLES:
            job = GenerateJob(
                turns=[],
                structure=structure,
                max_tokens=1,
                sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
            )
            with suppress(
                RefusedError
            ):  # an unusual vocabulary: jobs are refused later
                self.write(job, self.make_checker(), open_thought="")

    def make_checker(
        self,
        known: Collection[bytes] = (),
        report: Callable[[str], None] = lambda _: None,
    ) -> GrammarChecker:
        """Create the grammar checker of one job."""
        return GrammarChecker(self._tokenizer, known, report)

    def write(
        self, job: GenerateJob, checker: GrammarChecker, *, open_thought: str
    ) -> str:
        """Build and check the grammar of an answer; empty if it needs none.

        Raises:
            RefusedError: the grammar is not valid; the text says why, and where.
        """
        if not job.is_structured:
            return ""
        if job.structure is not None:
            refuse_end_tokens(job.structure, self._token_table.ends_by_text)
        if job.structure is not None and job.tool_choice.is_forced:
            # It is not enforced beside a forced call, but its errors are reported.
            checker.check(grammar_of(job.structure))
        try:
            with limited_steps(max_steps(source_chars(job))):
                grammar = answer_grammar(
                    self._dialect,
                    job,
                    self._token_table.special_by_text,
                    open_thought=open_thought,
                )
        except TooMuchWorkError as error:
            raise RefusedError(f"{ALL_FIELDS}: {error}") from error
        checker.check(grammar)
        if job.structure is not None and may_be_call_or_text(job):
            self._refuse_alike(job.structure, grammar)
        return grammar.source

    def _refuse_alike(self, structure: Structure, whole: Grammar) -> None:
        """Refuse a structure whose text may begin like a call, which would be ambiguous.

        The lexer prefers the longest lexeme: if the text's lexeme is longer than the call's,
        no call could be generated. If the text contains a whole marker, it would be parsed as
        a call.
        """
        alone = matcher_of(self._tokenizer, grammar_of(structure).source)
        both = matcher_of(self._tokenizer, whole.source)
        for region in self._dialect.regions:
            if region.holds != "calls":
                continue
            is_lost = region.only_first and not self._allows(both, region.begins[0])
            usual = region.begins[:_SPELLINGS]
            alike = [each for each in usual if self._allows(alone, each)]
            for begin in region.begins[:1] if is_lost else alike[:1]:
                raise RefusedError(
                    f"{structure.field}: the text may begin as a tool call does, with "
                    f"{json.dumps(begin)}; tool_choice may be none, or force a call"
                )

    def _allows(self, matcher: LLMatcher, text: str) -> bool:
        """Tell whether an answer may begin with a text, or with its special token."""
        tried = matcher.deep_copy()
        return all(
            tried.consume_token(token)
            for token in self._token_table.call_prefixes[text]
        )


def source_chars(job: GenerateJob) -> int:
    """Count the characters of a job that are rendered or compiled."""
    n_items = len(job.tools) + sum(1 + len(turn.calls) for turn in job.turns)
    tools = sum(
        len(tool.name) + len(tool.description) + len(tool.input_schema)
        for tool in job.tools
    )
    message_chars = sum(
        len(turn.text) + sum(len(call.arguments) for call in turn.calls)
        for turn in job.turns
    )
    structure = len(job.structure.source) if job.structure else 0
    return tools + message_chars + structure + PROMPT_ITEM_CHARS * n_items


def call_prefixes_of(prompts: PromptRenderer) -> Sequence[str]:
    """Return the call openings whose tokens a vocabulary must list."""
    return [
        begin
        for region in prompts.dialect.regions
        if region.holds == "calls"
        for begin in region.begins[:_SPELLINGS]
    ]
