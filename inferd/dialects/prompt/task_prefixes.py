"""Prefixes that embedding models expect before a text, by family and task.

The family is detected by the model's own name, else by its architecture. If a family has no
prefix for a task, or the family is unknown, the text is embedded unchanged.

Sources: the model cards of EmbeddingGemma, nomic-embed-text, E5, BGE, mxbai-embed,
snowflake-arctic-embed and Qwen3-Embedding.
"""

from collections.abc import Mapping
from typing import Final

_GEMMA: Final = {
    "retrieval_query": "task: search result | query: ",
    "retrieval_document": "title: none | text: ",
    "similarity": "task: sentence similarity | query: ",
    "classification": "task: classification | query: ",
    "clustering": "task: clustering | query: ",
    "question_answering": "task: question answering | query: ",
    "fact_verification": "task: fact checking | query: ",
    "code_retrieval_query": "task: code retrieval | query: ",
}
_QUERIES: Final = (
    "retrieval_query",
    "question_answering",
    "fact_verification",
    "code_retrieval_query",
)
_NOMIC: Final = {
    **dict.fromkeys(_QUERIES, "search_query: "),
    "retrieval_document": "search_document: ",
    "similarity": "clustering: ",
    "classification": "classification: ",
    "clustering": "clustering: ",
}
_E5: Final = {
    **dict.fromkeys(_GEMMA, "query: "),
    "retrieval_document": "passage: ",
}
_INSTRUCTED: Final = dict.fromkeys(
    _QUERIES,
    "Instruct: Given a web search query, retrieve relevant passages that answer the "
    "query\nQuery: ",
)
_CHINESE: Final = dict.fromkeys(_QUERIES, "为这个句子生成表示以用于检索相关文章：")  # noqa: RUF001  # theirs
_PASSAGES: Final = dict.fromkeys(
    _QUERIES, "Represent this sentence for searching relevant passages: "
)
_QWEN3: Final = dict.fromkeys(
    _QUERIES,
    "Instruct: Given a web search query, retrieve relevant passages that answer the "
    "query\nQuery:",
)

_BY_ARCHITECTURE: Final[Mapping[str, Mapping[str, str]]] = {
    "gemma-embedding": _GEMMA,
    "nomic-bert": _NOMIC,
    "nomic-bert-moe": _NOMIC,
    "qwen3": _QWEN3,
}
_BY_NAME: Final[Mapping[str, Mapping[str, str]]] = {
    "embeddinggemma": _GEMMA,
    "nomic-embed": _NOMIC,
    "e5-mistral": _INSTRUCTED,
    "-instruct": _INSTRUCTED,
    "e5-": _E5,
    "bge-m3": {},
    "-zh": _CHINESE,
    "bge-": _PASSAGES,
    "mxbai-embed": _PASSAGES,
    "arctic-embed-m-v2": {"retrieval_query": "query: "},
    "arctic-embed-l-v2": {"retrieval_query": "query: "},
    "arctic-embed": _PASSAGES,
}
"""By a part of the name, in lower case; the first match counts."""


def task_prefix(architecture: str, name: str, task: str | None) -> str:
    """Return the prefix for a text; empty without a task.

    Args:
        architecture: ``general.architecture`` of the model.
        name: ``general.name`` of the model.
        task: as in the request.
    """
    if task is None:
        return ""
    name = name.lower().replace(" ", "-")
    by_name = (family for part, family in _BY_NAME.items() if part in name)
    family = next(by_name, _BY_ARCHITECTURE.get(architecture, {}))
    return family.get(task, "")
