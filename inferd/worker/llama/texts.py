"""A job that embeds or scores: its texts, and what came of them."""

from dataclasses import dataclass, field

from inferd.job import EmbedJob, RerankJob
from inferd.worker.backend import PreparedJob
from inferd.worker.llama.vectors import Vector

__all__ = ["PreparedTexts"]


@dataclass
class PreparedTexts(PreparedJob):
    """A job's texts as tokens, and what came of those that are done."""

    job: EmbedJob | RerankJob
    texts: list[list[int]]
    results: list[Vector] = field(default_factory=list)
    n_told: int = 0
    """Results that were looked at, and told of if they are vectors."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all texts."""
        return sum(map(len, self.texts))
