"""Write what one request asks of a model: its prompt, and what its answer is held to."""

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from llguidance import LLMatcher, LLTokenizer

from inferd.dialects.effort import (
    TooMuchWorkError,
    allowed_for,
    bounded,
    writable_for,
)
from inferd.dialects.inert import SpelledError
from inferd.dialects.prompts import Prompts
from inferd.dialects.template import TemplateError
from inferd.job import GenerateJob, Sampling, Structure, Written
from inferd.limits import WRITTEN_ITEM_CHARS
from inferd.worker.backend import RefusedError
from inferd.worker.llama.compiler import matcher_of
from inferd.worker.llama.facts import Words
from inferd.worker.llama.grammar import (
    ALL_FIELDS,
    Grammar,
    answer_grammar,
    grammar_of,
    leaves_choice,
    refuse_ends,
    refuse_names,
)
from inferd.worker.llama.trial import Trial

_SAMPLES = (
    Structure(kind="regex", source="[a-z]+"),
    Structure(
        kind="json_schema",
        source='{"type": "object", "properties": {"a": {"type": "string"}}}',
    ),
)
_SPELLINGS = 3
"""Of what begins a call; each that is looked for in a structure takes milliseconds."""


def write_prompt(prompts: Prompts, job: GenerateJob) -> Written:
    """Write a job's prompt alone.

    Raises:
        RefusedError: the template refuses, the family cannot write a tool's name, or
            there are too many special tokens in what clients have written, or the
            prompt is much longer than what was sent.
    """
    refuse_names(prompts.dialect, job)
    try:
        with bounded(allowed_for(size_of(job))):
            rendered = prompts.render(job)
    except (TemplateError, SpelledError) as error:
        raise RefusedError(str(error)) from error
    except TooMuchWorkError as error:
        raise RefusedError(f"tools: {error}") from error
    _refuse_more(rendered.pieces, job)
    return Written(pieces=rendered.pieces, open_thought=rendered.open_thought)


def _refuse_more(pieces: Sequence[str], job: GenerateJob) -> None:
    """Refuse a prompt that is out of proportion: the model would have to read it."""
    n_chars, most = sum(map(len, pieces)), writable_for(size_of(job))
    if n_chars > most:
        raise RefusedError(
            f"{'tools' if job.tools else 'messages'}: they make a prompt of {n_chars} "
            f"characters, at most {most} are allowed for what was sent"
        )


class Grammars:
    """Writes and tries what answers of one model are held to.

    Args:
        prompts: of the model.
        words: its vocabulary.
        tokenizer: that was made of it.
    """

    def __init__(self, prompts: Prompts, words: Words, tokenizer: LLTokenizer) -> None:
        self._dialect = prompts.dialect
        self._words = words
        self._tokenizer = tokenizer

    def warm_up(self) -> None:
        """Do now what is done for the first job that needs it, and kept: for all forks."""
        for structure in _SAMPLES:
            job = GenerateJob(
                turns=[],
                structure=structure,
                max_tokens=1,
                sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
            )
            with suppress(RefusedError):  # an odd vocabulary: jobs will hear of it
                self.write(job, self.trial(), open_thought="")

    def trial(
        self,
        known: Collection[bytes] = (),
        tell: Callable[[str], None] = lambda _: None,
    ) -> Trial:
        """Make what tries the grammars of one job."""
        return Trial(self._tokenizer, known, tell)

    def write(self, job: GenerateJob, trial: Trial, *, open_thought: str) -> str:
        """Write what an answer is held to, and try it; empty where it is held to nothing.

        Raises:
            RefusedError: it cannot be held to that; the text says why, and where.
        """
        if not job.is_structured:
            return ""
        if job.structure is not None:
            refuse_ends(job.structure, self._words.ends_named)
        if job.structure is not None and job.tool_choice.is_forced:
            # nothing is held to it, but a client is told of what it got wrong
            trial.check(grammar_of(job.structure))
        try:
            with bounded(allowed_for(size_of(job))):
                grammar = answer_grammar(
                    self._dialect, job, self._words.named, open_thought=open_thought
                )
        except TooMuchWorkError as error:
            raise RefusedError(f"{ALL_FIELDS}: {error}") from error
        trial.check(grammar)
        if job.structure is not None and leaves_choice(job):
            self._refuse_alike(job.structure, grammar)
        return grammar.source

    def _refuse_alike(self, structure: Structure, whole: Grammar) -> None:
        """Refuse a text that may begin as a call does, which then could not be told.

        A grammar follows the longest piece that goes on: where a text's is longer than a
        call's, no call could be written, and where it holds a whole marker, it would be
        read as a call.
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
        """Tell whether an answer may begin with a text, or the token that it is."""
        tried = matcher.deep_copy()
        return all(tried.consume_token(token) for token in self._words.openings[text])


def size_of(job: GenerateJob) -> int:
    """Give the characters of all that is translated of a job."""
    n_items = len(job.tools) + sum(1 + len(turn.calls) for turn in job.turns)
    tools = sum(
        len(tool.name) + len(tool.description) + len(tool.input_schema)
        for tool in job.tools
    )
    said = sum(
        len(turn.text) + sum(len(call.arguments) for call in turn.calls)
        for turn in job.turns
    )
    structure = len(job.structure.source) if job.structure else 0
    return tools + said + structure + WRITTEN_ITEM_CHARS * n_items


def openings_of(prompts: Prompts) -> Sequence[str]:
    """Give the texts of which a vocabulary has to tell the tokens."""
    return [
        begin
        for region in prompts.dialect.regions
        if region.holds == "calls"
        for begin in region.begins[:_SPELLINGS]
    ]
