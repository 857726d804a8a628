"""Answer each JSON line of stdin: in order, several at once, and resumed."""

import argparse
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from inferd.cli.batch.clients import JobClients
from inferd.cli.batch.ordered import in_order
from inferd.cli.batch.output import LineOutput
from inferd.cli.batch.progress import BatchProgress
from inferd.cli.connect import configured_directory, open_client
from inferd.cli.console import EXIT_ERROR, EXIT_OK, stdin
from inferd.cli.json_lines import JsonLine, read_lines
from inferd.client.exchange import RequestFailedError
from inferd.errors import ErrorCode

_OF_A_LINE: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.FRAME_TOO_LARGE)
"""Refusals that concern one line, and not all."""


class LineResult(NamedTuple):
    """The fields that are added to those of a line."""

    fields: Mapping[str, object]
    is_failure: bool = False


AnswerLine = Callable[[JobClients, JsonLine], LineResult]


def answer_lines(arguments: argparse.Namespace, wanted: str, answer: AnswerLine) -> int:
    """Write a line for each line of stdin; return the exit code.

    A line that the daemon refuses is written with its ``error``, and the others go on.

    Args:
        arguments: with ``directory``, ``jobs``, ``output`` and ``resume``.
        wanted: what the daemon must offer, such as ``generation``.
        answer: asks for one line, in any thread.

    Raises:
        CommandError: a line is not valid, or the daemon can answer none.
    """
    directory = arguments.directory or configured_directory()
    progress = BatchProgress()
    with (
        LineOutput(arguments.output, resumes=arguments.resume) as output,
        open_client(directory, wanted),
        closing(JobClients(directory)) as clients,
    ):
        lines = islice(read_lines(stdin().buffer), output.n_done, None)
        ask = partial(_answer, clients, answer)
        try:
            for result in in_order(ask, lines, arguments.jobs, clients.close):
                progress.clear()
                output.write(result.fields)
                progress.add(is_failure=result.is_failure)
        finally:
            progress.clear()
    return EXIT_ERROR if progress.n_failed else EXIT_OK


def _answer(clients: JobClients, answer: AnswerLine, line: JsonLine) -> LineResult:
    try:
        result = answer(clients, line)
    except RequestFailedError as error:
        if error.code not in _OF_A_LINE:
            raise
        fault = {"code": error.code, "message": error.frame.message}
        result = LineResult({"error": fault}, is_failure=True)
    return result._replace(fields={**line.fields, **result.fields})
