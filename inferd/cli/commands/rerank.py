"""inferd rerank: sort documents by relevance to a query."""

import argparse
from functools import partial
from itertools import islice

import msgspec

from inferd.cli.batch.arguments import add_jobs_argument, add_output_arguments
from inferd.cli.batch.clients import JobClients
from inferd.cli.batch.lines import LineResult, answer_lines
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
    JsonLine,
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


class _RankingTask(msgspec.Struct):
    """A line of ``--jsonl``."""

    query: str
    documents: list[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "query", nargs="?", metavar="QUERY", help="the search query; none with --jsonl"
    )
    add_texts_argument(parser, "document")
    parser.add_argument(
        "--top-n", type=u32, metavar="N", help="print only the best N (default all)"
    )
    parser.add_argument(
        "--jsonl",
        action="store_true",
        help='rank the "documents" of each line of stdin by its "query"',
    )
    add_jobs_argument(parser)
    add_output_arguments(parser, "with --jsonl")
    add_model_argument(parser)
    add_id_argument(parser)
    add_socket_argument(parser)
    parser.epilog = (
        f"{JSON_LINES_HELP} At most {MAX_RERANK_DOCUMENTS} documents. The output has a line "
        'for each: the object, or one with "text", with "index" (its position in the '
        'input, from 0) and "score" added or replaced. With --jsonl, a line is an object '
        'with "query" and "documents", and the output has a line for each, in order: the '
        'object with "results" added, each with "index" and "score", or with "error" if '
        "it is refused, and the exit code is 2 then."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the documents, the best first."""
    if arguments.jsonl:
        if arguments.query is not None:
            raise CommandError("--jsonl reads stdin, and no QUERY")
        return answer_lines(arguments, "reranking", partial(_rank_line, arguments))
    if arguments.query is None:
        raise CommandError("no QUERY given")
    if arguments.output or arguments.resume or arguments.jobs > 1:
        raise CommandError("--output, --resume and --jobs need --jsonl")
    documents = _documents(arguments)
    texts = [document.text for document in documents]
    request = _request(arguments, arguments.query, texts)
    with open_client(arguments.directory, "reranking") as client:
        try:
            results = client.rerank(request).results
        except RequestFailedError as error:
            raise input_error(error, "documents", documents) from error
    for result in results:
        _print(result, documents)
    return EXIT_OK


def _rank_line(
    arguments: argparse.Namespace, clients: JobClients, line: JsonLine
) -> LineResult:
    try:
        task = msgspec.convert(
            {name: msgspec.json.decode(value) for name, value in line.fields.items()},
            _RankingTask,
        )
    except msgspec.DecodeError as error:
        raise CommandError(
            f'{line.origin}: no object with "query" and "documents": {error}'
        ) from error
    request = _request(arguments, task.query, task.documents)
    frame = clients.ask(lambda client: client.rerank(request))
    return LineResult({"results": frame.results})


def _request(
    arguments: argparse.Namespace, query: str, documents: list[str]
) -> RerankRequest:
    return RerankRequest(
        id=arguments.id,
        model=arguments.model,
        query=query,
        documents=documents,
        top_n=arguments.top_n,
    )


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
