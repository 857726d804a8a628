"""inferd embed: turn texts into embeddings, one JSON line or one row for each."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from inferd.cli.batch.arguments import add_jobs_argument, add_output_arguments
from inferd.cli.batch.clients import JobClients
from inferd.cli.batch.npy import VectorFile
from inferd.cli.batch.ordered import in_order
from inferd.cli.batch.output import LineOutput
from inferd.cli.batch.progress import BatchProgress
from inferd.cli.connect import (
    add_id_argument,
    add_model_argument,
    add_socket_argument,
    configured_directory,
    open_client,
)
from inferd.cli.console import EXIT_OK, CommandError
from inferd.cli.json_lines import (
    JSON_LINES_HELP,
    InputText,
    add_texts_argument,
    input_error,
    read_texts,
)
from inferd.cli.numbers import int_range, u32
from inferd.client.exchange import RequestFailedError, embeddings_of
from inferd.limits.protocol import MAX_EMBED_INPUTS
from inferd.wire.requests import EmbedRequest

BATCH_TEXTS: Final = 64
"""Default number of texts in one request: enough to keep the backend busy."""
BATCH_CHARS: Final = 8 * 1024 * 1024
"""Characters at which a batch is sent, whatever its number of texts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_texts_argument(parser, "text")
    parser.add_argument(
        "--dimensions",
        type=u32,
        metavar="N",
        help="keep the first N numbers of an embedding",
    )
    parser.add_argument(
        "--task",
        metavar="T",
        help="purpose of the embeddings, such as retrieval_query, retrieval_document",
    )
    parser.add_argument(
        "--batch",
        type=int_range(1, MAX_EMBED_INPUTS),
        default=BATCH_TEXTS,
        metavar="N",
        help=f"texts in one request, at most {MAX_EMBED_INPUTS} (default {BATCH_TEXTS})",
    )
    add_jobs_argument(parser)
    add_output_arguments(parser, "as .jsonl, or the vectors alone as NumPy's .npy")
    add_model_argument(parser)
    add_id_argument(parser)
    add_socket_argument(parser)
    parser.epilog = (
        f"{JSON_LINES_HELP} The output has a line for each text, in the same order: the "
        'object, or one with "text", with "embedding" added or replaced. It is printed '
        "as soon as its batch is done. The first line that cannot be embedded ends the "
        "command."
    )


def run(arguments: argparse.Namespace) -> int:
    """Embed batch by batch, and write the results of each as soon as it is done."""
    texts = read_texts(arguments.texts, "text")
    directory = arguments.directory or configured_directory()
    progress = BatchProgress()
    with (
        _open_output(arguments) as output,
        open_client(directory, "embeddings"),
        closing(JobClients(directory)) as clients,
    ):
        rest = batches(islice(texts, output.n_done, None), arguments.batch)
        embed = partial(_embedded, clients, arguments)
        try:
            for batch, vectors in in_order(embed, rest, arguments.jobs, clients.close):
                progress.clear()
                _write(output, batch, vectors)
                progress.add(len(batch))
        finally:
            progress.clear()
    return EXIT_OK


def _open_output(arguments: argparse.Namespace) -> LineOutput | VectorFile:
    path: Path | None = arguments.output
    if path is None or path.suffix == ".jsonl":
        return LineOutput(path, resumes=arguments.resume)
    if path.suffix == ".npy":
        return VectorFile(path, resumes=arguments.resume)
    raise CommandError(f"{path}: its name must end in .jsonl or .npy")


def _write(
    output: LineOutput | VectorFile,
    batch: Sequence[InputText],
    vectors: Sequence[Sequence[float]],
) -> None:
    if isinstance(output, VectorFile):
        output.write(vectors)
        return
    for text, vector in zip(batch, vectors, strict=True):
        output.write({**text.fields, "embedding": vector})


def batches(texts: Iterable[InputText], n_texts: int) -> Iterator[list[InputText]]:
    """Group texts into lists of ``n_texts``.

    Raises:
        CommandError: ``texts`` raised it; the texts before it were yielded.
    """
    batch: list[InputText] = []
    n_chars = 0
    failure: CommandError | None = None
    try:
        for text in texts:
            batch.append(text)
            n_chars += len(text.text)
            if len(batch) == n_texts or n_chars >= BATCH_CHARS:
                yield batch
                batch, n_chars = [], 0
    except CommandError as error:
        failure = error
    if batch:
        yield batch
    if failure:
        raise failure


def _embedded(
    clients: JobClients, arguments: argparse.Namespace, batch: Sequence[InputText]
) -> tuple[Sequence[InputText], list[list[float]]]:
    request = EmbedRequest(
        id=arguments.id,
        model=arguments.model,
        input=[text.text for text in batch],
        dimensions=arguments.dimensions,
        task=arguments.task,
    )
    try:
        vectors = embeddings_of(clients.ask(lambda client: client.embed(request)))
    except RequestFailedError as error:
        raise input_error(error, "input", batch) from error
    if len(vectors) != len(batch):
        raise CommandError(
            f"the daemon gave {len(vectors)} embeddings for {len(batch)} texts"
        )
    return batch, vectors
