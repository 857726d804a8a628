"""inferd rerank: documents in, the best first."""

import argparse
from itertools import islice

from inferd.cli.console import EXIT_OK, CommandError
from inferd.cli.daemon import add_id_argument, add_socket_argument, asking
from inferd.cli.numbers import u32
from inferd.cli.texts import (
    LINES,
    Text,
    add_texts_argument,
    print_line,
    refusal,
    texts_of,
)
from inferd.client.exchange import RequestFailedError
from inferd.limits import MAX_RERANK_DOCUMENTS
from inferd.wire.requests import RerankRequest
from inferd.wire.responses import RankedDocument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("query", metavar="QUERY", help="what is looked for")
    add_texts_argument(parser, "document")
    parser.add_argument(
        "--top-n", type=u32, metavar="N", help="print the best N only; default all"
    )
    add_id_argument(parser)
    add_socket_argument(parser)
    parser.epilog = (
        f'{LINES} At most {MAX_RERANK_DOCUMENTS} documents. Each gives a line: "index" '
        '(its place, from 0) and "score", in place of those that it had, and the '
        'object, or its "text".'
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the documents, the best first."""
    documents = _documents(arguments)
    request = RerankRequest(
        id=arguments.id,
        query=arguments.query,
        documents=[each.text for each in documents],
        top_n=arguments.top_n,
    )
    with asking(arguments.directory, "reranking") as client:
        try:
            results = client.rerank(request).results
        except RequestFailedError as error:
            raise refusal(error, "documents", documents) from error
    for result in results:
        _print(result, documents)
    return EXIT_OK


def _documents(arguments: argparse.Namespace) -> list[Text]:
    texts = texts_of(arguments.texts, "document")
    documents = list(islice(texts, MAX_RERANK_DOCUMENTS + 1))
    if len(documents) > MAX_RERANK_DOCUMENTS:
        raise CommandError(
            f"more than {MAX_RERANK_DOCUMENTS} documents; "
            f"{MAX_RERANK_DOCUMENTS} can be ranked at once"
        )
    return documents


def _print(result: RankedDocument, documents: list[Text]) -> None:
    if not 0 <= result.index < len(documents):
        raise CommandError(f"the daemon ranked document {result.index}: there is none")
    rank = {"index": result.index, "score": result.score}
    print_line({**rank, **documents[result.index].fields, **rank})  # ours stand first
