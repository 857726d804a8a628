"""inferd embed: texts in, embeddings out, a line each."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from inferd.cli.console import EXIT_OK, CommandError
from inferd.cli.daemon import add_id_argument, add_socket_argument, asking
from inferd.cli.numbers import u32, whole
from inferd.cli.texts import (
    LINES,
    Text,
    add_texts_argument,
    print_line,
    refusal,
    texts_of,
)
from inferd.client.exchange import RequestFailedError, embeddings_of
from inferd.client.sync import Client
from inferd.limits import MAX_EMBED_INPUTS
from inferd.wire.requests import EmbedRequest

BATCH_TEXTS: Final = 64
"""Texts of one request unless told otherwise: enough to keep the backend busy."""
BATCH_CHARS: Final = 8 * 1024 * 1024
"""Characters after which a request has enough, however few its texts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_texts_argument(parser, "text")
    parser.add_argument(
        "--dimensions", type=u32, metavar="N", help="keep the first N numbers"
    )
    parser.add_argument(
        "--task", metavar="T", help="such as retrieval_query, retrieval_document"
    )
    parser.add_argument(
        "--batch",
        type=whole(1, MAX_EMBED_INPUTS),
        default=BATCH_TEXTS,
        metavar="N",
        help=f"texts a request, at most {MAX_EMBED_INPUTS} (default {BATCH_TEXTS})",
    )
    add_id_argument(parser)
    add_socket_argument(parser)
    parser.epilog = (
        f'{LINES} Each gives a line: the object, or one with "text", and its '
        '"embedding" in place of one that it had, in the same order, as soon as its '
        "batch is done. "
        "The first line that cannot be embedded ends the command."
    )


def run(arguments: argparse.Namespace) -> int:
    """Embed batch after batch, and print each as soon as it is done."""
    texts = texts_of(arguments.texts, "text")
    with asking(arguments.directory, "embeddings") as client:
        for batch in batches(texts, arguments.batch):
            for text, embedding in zip(
                batch, _embed(client, batch, arguments), strict=True
            ):
                print_line({**text.fields, "embedding": embedding})
    return EXIT_OK


def batches(texts: Iterable[Text], n_texts: int) -> Iterator[list[Text]]:
    """Cut texts in lists of so many; where they break off, what came before is given."""
    batch: list[Text] = []
    n_chars = 0
    broken: CommandError | None = None
    try:
        for text in texts:
            batch.append(text)
            n_chars += len(text.text)
            if len(batch) == n_texts or n_chars >= BATCH_CHARS:
                yield batch
                batch, n_chars = [], 0
    except CommandError as error:
        broken = error
    if batch:
        yield batch
    if broken:
        raise broken


def _embed(
    client: Client, batch: Sequence[Text], arguments: argparse.Namespace
) -> list[list[float]]:
    request = EmbedRequest(
        id=arguments.id,
        input=[each.text for each in batch],
        dimensions=arguments.dimensions,
        task=arguments.task,
    )
    try:
        embeddings = embeddings_of(client.embed(request))
    except RequestFailedError as error:
        raise refusal(error, "input", batch) from error
    if len(embeddings) != len(batch):
        raise CommandError(
            f"the daemon gave {len(embeddings)} embeddings for {len(batch)} texts"
        )
    return embeddings
