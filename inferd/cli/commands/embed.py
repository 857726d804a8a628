"""inferd embed: turn texts into embeddings, one JSON line for each."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

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
from inferd.cli.numbers import int_range, u32
from inferd.client.exchange import RequestFailedError, embeddings_of
from inferd.client.sync import FrameClient
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
    """Embed batch by batch, and print the results of each as soon as it is done."""
    texts = read_texts(arguments.texts, "text")
    with open_client(arguments.directory, "embeddings") as client:
        for batch in batches(texts, arguments.batch):
            for text, embedding in zip(
                batch, _embed(client, batch, arguments), strict=True
            ):
                print_result({**text.fields, "embedding": embedding})
    return EXIT_OK


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


def _embed(
    client: FrameClient, batch: Sequence[InputText], arguments: argparse.Namespace
) -> list[list[float]]:
    request = EmbedRequest(
        id=arguments.id,
        model=arguments.model,
        input=[text.text for text in batch],
        dimensions=arguments.dimensions,
        task=arguments.task,
    )
    try:
        embeddings = embeddings_of(client.embed(request))
    except RequestFailedError as error:
        raise input_error(error, "input", batch) from error
    if len(embeddings) != len(batch):
        raise CommandError(
            f"the daemon gave {len(embeddings)} embeddings for {len(batch)} texts"
        )
    return embeddings
