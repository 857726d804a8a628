"""inferd rerank: sort documents by relevance to a query."""

import argparse
from itertools import islice

from inferd.cli.connect import (
    add_id_argument,
    add_model_argument,
    add_socket_argument,
    open_client,
)
from inferd.cli.console import EXIT_OK, CommandError
from inferd.cli.json_lines import (
    JSON_LINES_HELP,
    InputText,
    add_texts_argument,
    input_error,
    print_result,
    read_texts,
)
from inferd.cli.numbers import u32
from inferd.client.exchange import RequestFailedError
from inferd.limits.protocol import MAX_RERANK_DOCUMENTS
from inferd.wire.requests import RerankRequest
from inferd.wire.responses import RankedDocument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("query", metavar="QUERY", help="the search query")
    add_texts_argument(parser, "document")
    parser.add_argument(
        "--top-n", type=u32, metavar="N", help="print only the best N (default all)"
    )
    add_model_argument(parser)
    add_id_argument(parser)
    add_socket_argument(parser)
    parser.epilog = (
        f"{JSON_LINES_HELP} At most {MAX_RERANK_DOCUMENTS} documents. The output has a line "
        'for each: the object, or one with "text", with "index" (its position in the '
        'input, from 0) and "score" added or replaced.'
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the documents, the best first."""
    documents = _documents(arguments)
    request = RerankRequest(
        id=arguments.id,
        model=arguments.model,
        query=arguments.query,
        documents=[document.text for document in documents],
        top_n=arguments.top_n,
    )
    with open_client(arguments.directory, "reranking") as client:
        try:
            results = client.rerank(request).results
        except RequestFailedError as error:
            raise input_error(error, "documents", documents) from error
    for result in results:
        _print(result, documents)
    return EXIT_OK


def _documents(arguments: argparse.Namespace) -> list[InputText]:
    texts = read_texts(arguments.texts, "document")
    documents = list(islice(texts, MAX_RERANK_DOCUMENTS + 1))
    if len(documents) > MAX_RERANK_DOCUMENTS:
        raise CommandError(
            f"more than {MAX_RERANK_DOCUMENTS} documents; "
            f"{MAX_RERANK_DOCUMENTS} can be ranked at once"
        )
    return documents


def _print(result: RankedDocument, documents: list[InputText]) -> None:
    if not 0 <= result.index < len(documents):
        raise CommandError(f"the daemon ranked document {result.index}: there is none")
    rank = {"index": result.index, "score": result.score}
    print_result({**rank, **documents[result.index].fields, **rank})  # rank comes first
