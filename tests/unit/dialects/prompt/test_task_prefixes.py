from hypothesis import given, strategies as st

from inferd.dialects.prompt import task_prefixes
from inferd.dialects.prompt.task_prefixes import task_prefix
from inferd.resolve.embed import TASKS
from tests.cases import each_case

QUERY = "retrieval_query"
DOCUMENT = "retrieval_document"
QUERIES = {QUERY, "question_answering", "fact_verification", "code_retrieval_query"}
PASSAGES = "Represent this sentence for searching relevant passages: "


@each_case(
    ("architecture", "name", "task", "prefix"),
    [
        ("gemma-embedding", "", QUERY, "task: search result | query: "),
        ("gemma-embedding", "", DOCUMENT, "title: none | text: "),
        ("gemma-embedding", "", "clustering", "task: clustering | query: "),
        ("gemma-embedding", "", "similarity", "task: sentence similarity | query: "),
        ("gemma3", "EmbeddingGemma 300M", QUERY, "task: search result | query: "),
        ("nomic-bert", "nomic-embed-text-v1.5", QUERY, "search_query: "),
        ("nomic-bert", "nomic-embed-text-v1.5", DOCUMENT, "search_document: "),
        ("nomic-bert-moe", "", "classification", "classification: "),
        ("nomic-bert", "", "similarity", "clustering: "),
        ("bert", "E5 Small v2", QUERY, "query: "),
        ("bert", "intfloat/e5-base", DOCUMENT, "passage: "),
        ("bert", "multilingual-e5-large", "similarity", "query: "),
        ("bert", "Bge Small En v1.5", QUERY, PASSAGES),
        ("bert", "bge-small-en-v1.5", DOCUMENT, ""),
        ("bert", "BGE M3", QUERY, ""),
        ("bert", "mxbai-embed-large-v1", QUERY, PASSAGES),
        ("bert", "snowflake-arctic-embed-m", QUERY, PASSAGES),
        ("gte", "snowflake-arctic-embed-m-v2.0", QUERY, "query: "),
        ("bert", "snowflake-arctic-embed-l-v2.0", QUERY, "query: "),
        ("bert", "snowflake-arctic-embed-l-v2.0", DOCUMENT, ""),
        ("bert", "all-MiniLM-L6-v2", QUERY, ""),
        ("bert", "", QUERY, ""),
        ("", "", QUERY, ""),
    ],
)
def test_a_family_has_its_prefix(architecture, name, task, prefix):
    assert task_prefix(architecture, name, task) == prefix


def test_an_instruction_ends_where_the_query_begins():
    assert task_prefix("qwen3", "Qwen3-Embedding-0.6B", QUERY) == (
        "Instruct: Given a web search query, retrieve relevant passages that answer the "
        "query\nQuery:"
    )
    assert task_prefix("qwen3", "Qwen3-Embedding-0.6B", DOCUMENT) == ""


@given(architecture=st.text(), name=st.text())
def test_without_a_task_nothing_is_put_in_front(architecture, name):
    assert task_prefix(architecture, name, None) == ""


@each_case("part", task_prefixes._BY_NAME)
@each_case("task", TASKS)
def test_a_name_is_read_in_any_spelling(part, task):
    spellings = (part, part.upper(), part.replace("-", " ").title(), f"Some {part} v9")
    assert len({task_prefix("bert", name, task) for name in spellings}) == 1


def test_families_know_tasks_of_the_wire_and_no_others():
    families = (
        *task_prefixes._BY_ARCHITECTURE.values(),
        *task_prefixes._BY_NAME.values(),
    )
    assert {task for family in families for task in family} <= set(TASKS)


@each_case("name", ["nomic-embed", "e5-small", "bge-small", "arctic-embed"])
def test_most_families_know_one_kind_of_query(name):
    prefixes = {task_prefix("bert", name, task) for task in QUERIES}
    assert len(prefixes) == 1
    assert task_prefix("bert", name, DOCUMENT) not in prefixes
