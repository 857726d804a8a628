"""inferd transcribe: transcribe speech from files, stdin or live."""

import argparse
from functools import partial
from pathlib import Path
from typing import Final

from inferd.cli.batch.arguments import add_jobs_argument
from inferd.cli.batch.lines import answer_lines
from inferd.cli.batch.transcripts import transcribe_line
from inferd.cli.connect import (
    add_id_argument,
    add_model_argument,
    add_socket_argument,
    open_client,
)
from inferd.cli.console import EXIT_ERROR, EXIT_OK, CommandError
from inferd.cli.numbers import int_range
from inferd.cli.transcription.output import Destination, parse_formats
from inferd.cli.transcription.recording import (
    STDIN,
    Recording,
    open_live,
    open_recording,
)
from inferd.cli.transcription.transcriber import IncompleteError, Transcriber
from inferd.client.exchange import RequestFailedError
from inferd.client.media.errors import MissingExtraError
from inferd.client.media.sound import RAW_BYTES, SAMPLE_RATE_HZ, SoundError
from inferd.client.transcripts import FORMATS
from inferd.errors import ErrorCode
from inferd.terminal import print_stderr
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    BlocksRequest,
    Message,
    TextBlock,
)

RATES_HZ: Final = (1000, 384_000)
"""Allowed sample rates of stdin."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="an audio or video file; - reads one, or raw samples, from stdin",
    )
    _add_speech_arguments(parser)
    _add_output_arguments(parser)
    _add_resume_argument(parser)
    _add_lines_arguments(parser)
    _add_stdin_arguments(parser)
    add_model_argument(parser)
    add_id_argument(parser)
    add_socket_argument(parser)
    parser.epilog = (
        "A file that cannot be decoded is reported on stderr and skipped, and the exit "
        "code is 2. For a truncated file, and for an incomplete answer, the part that "
        "was transcribed is written, and the exit code is 2 as well; after ^C it is 130. "
        "With --live, ^C ends the "
        "recording, and a second ^C ends the command. "
        "Files are decoded by this command, which needs the package av."
    )


def _add_speech_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language", metavar="CODE", help="such as de (default: detected)"
    )
    parser.add_argument(
        "--translate", action="store_true", help="translate the speech into English"
    )
    parser.add_argument(
        "--timestamps",
        choices=("segment", "word"),
        default="segment",
        help="unit that gets timestamps, and a subtitle cue of its own "
        "(default segment)",
    )
    parser.add_argument(
        "--prompt", metavar="TEXT", help="names and words that may occur in the speech"
    )


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        type=parse_formats,
        default=["txt"],
        dest="kinds",
        metavar="FORMAT,…",
        help=f"output formats, of {', '.join(FORMATS)} (default txt)",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="write a file named after each FILE into DIR (default -, stdout)",
    )


def _add_resume_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--resume",
        action="store_true",
        help="with --output DIR: leave out each FILE whose transcripts are there; with "
        "--jsonl: as many lines as the output has",
    )


def _add_lines_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jsonl",
        action="store_true",
        help="transcribe the recording that each line of stdin names: a path, or an "
        'object with "file"; --output is then a file of JSON lines',
    )
    add_jobs_argument(parser)


def _add_stdin_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--live",
        action="store_true",
        help="transcribe stdin while it is being recorded",
    )
    parser.add_argument(
        "--samples",
        choices=tuple(RAW_BYTES),
        help="stdin has raw samples of this format, one channel (default: a file of a "
        "known format is decoded, anything else is f32le)",
    )
    parser.add_argument(
        "--rate",
        type=int_range(*RATES_HZ),
        default=SAMPLE_RATE_HZ,
        metavar="HZ",
        help=f"sample rate of raw samples (default {SAMPLE_RATE_HZ})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Transcribe one recording after another, or those that lines of stdin name."""
    if arguments.jsonl:
        return _transcribe_lines(arguments)
    if arguments.jobs > 1:
        raise CommandError("--jobs needs --jsonl")
    names = _names(arguments)
    directory = None if arguments.output in (None, STDIN) else Path(arguments.output)
    destination = Destination(
        arguments.kinds, directory, has_words=arguments.timestamps == "word"
    )
    destination.check(names)
    if arguments.resume:
        names = destination.missing(names)
    destination.make_directory()
    n_failed = 0
    with open_client(arguments.directory, "transcription") as client:
        transcriber = Transcriber(client, partial(make_request, arguments), destination)
        for name in names:
            try:
                transcriber.transcribe(
                    _recording(name, arguments), is_live=arguments.live
                )
            except (SoundError, RequestFailedError, IncompleteError) as error:
                if _concerns_all_files(error, arguments.id):
                    raise
                print_stderr(f"error: {name}: {error}")
                n_failed += 1
            except MissingExtraError as error:
                raise CommandError(str(error)) from error
    return EXIT_ERROR if n_failed else EXIT_OK


def _transcribe_lines(arguments: argparse.Namespace) -> int:
    if arguments.files or arguments.live:
        raise CommandError("--jsonl reads the names of files from stdin, and no FILE")
    arguments.output = None if arguments.output is None else Path(arguments.output)
    make = partial(make_request, arguments)
    return answer_lines(arguments, "transcription", partial(transcribe_line, make))


def make_request(
    arguments: argparse.Namespace, attachment: AudioAttachment
) -> BlocksRequest:
    """Build the request."""
    prompt = [TextBlock(arguments.prompt)] if arguments.prompt else []
    return BlocksRequest(
        id=arguments.id,
        model=arguments.model,
        messages=[Message("user", [*prompt, AudioBlock(attachment.id)])],
        attachments=[attachment],
        language=arguments.language,
        translate=arguments.translate or None,
        timestamps=arguments.timestamps,  # makes it a request for transcription
    )


def _concerns_all_files(error: Exception, request_id: str) -> bool:
    """Tell whether the daemon would refuse the other files, too."""
    return isinstance(error, RequestFailedError) and (
        error.frame.id != request_id or error.code == ErrorCode.MODEL_NOT_FOUND
    )


def _names(arguments: argparse.Namespace) -> list[str]:
    names: list[str] = arguments.files
    if arguments.live:
        if names not in ([], [STDIN]):
            raise CommandError("--live reads stdin, and no FILE")
        return [STDIN]
    if not names:
        raise CommandError("no FILE given; - reads raw samples from stdin")
    if names.count(STDIN) > 1:
        raise CommandError("stdin (-) can be given only once")
    return names


def _recording(name: str, arguments: argparse.Namespace) -> Recording:
    if arguments.live:
        return open_live(arguments.samples, arguments.rate)
    return open_recording(name, arguments.samples, arguments.rate)
