"""inferd transcribe: speech in, text out, while it is decoded or while it is said."""

import argparse
from functools import partial
from pathlib import Path
from typing import Final

from inferd.cli.console import EXIT_ERROR, EXIT_OK, CommandError
from inferd.cli.daemon import add_id_argument, add_socket_argument, asking
from inferd.cli.numbers import whole
from inferd.cli.outlets import Destination, kinds_of
from inferd.cli.recordings import (
    STDIN,
    Recording,
    live_recording,
    recording_of,
)
from inferd.cli.scribe import IncompleteError, Scribe
from inferd.client.exchange import RequestFailedError
from inferd.client.media import MissingExtraError
from inferd.client.sound import RAW_BYTES, SAMPLE_RATE_HZ, SoundError
from inferd.client.transcripts import FORMATS
from inferd.terminal import say
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    BlocksRequest,
    Message,
    TextBlock,
)

RATES_HZ: Final = (1000, 384_000)
"""What raw samples may have a second."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="sound, or a film; - reads raw samples from stdin",
    )
    _add_speech_arguments(parser)
    _add_output_arguments(parser)
    _add_stdin_arguments(parser)
    add_id_argument(parser)
    add_socket_argument(parser)
    parser.epilog = (
        "A file that cannot be used is told on stderr, and the others are done all the "
        "same: exit code 2. So is one that breaks off, and one whose answer does: its "
        "text is written as far as it goes. With --live an interrupt ends the sound, and "
        "a second one the command. "
        "Files are decoded here, which takes: pip install 'inferd[media]'."
    )


def _add_speech_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language", metavar="CODE", help="such as de; default: found out"
    )
    parser.add_argument(
        "--translate", action="store_true", help="write in English what is said"
    )
    parser.add_argument(
        "--timestamps",
        choices=("segment", "word"),
        default="segment",
        help="what has times, and is a cue of subtitles (default segment)",
    )
    parser.add_argument(
        "--prompt", metavar="TEXT", help="names and words that may be said"
    )


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        type=kinds_of,
        default=["txt"],
        dest="kinds",
        metavar="FORMAT,…",
        help=f"of {', '.join(FORMATS)} (default txt)",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="write files named after each FILE there; default: -, stdout",
    )


def _add_stdin_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--live",
        action="store_true",
        help="send stdin as it comes, and print what is said meanwhile",
    )
    parser.add_argument(
        "--samples",
        choices=tuple(RAW_BYTES),
        default="f32le",
        help="what stdin has, of one channel (default f32le)",
    )
    parser.add_argument(
        "--rate",
        type=whole(*RATES_HZ),
        default=SAMPLE_RATE_HZ,
        metavar="HZ",
        help=f"samples of stdin a second (default {SAMPLE_RATE_HZ})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write down one recording after another."""
    names = _names(arguments)
    directory = None if arguments.output in (None, STDIN) else Path(arguments.output)
    destination = Destination(
        arguments.kinds, directory, has_words=arguments.timestamps == "word"
    )
    destination.check(names)
    destination.make_directory()
    n_failed = 0
    with asking(arguments.directory, "transcription") as client:
        scribe = Scribe(client, partial(make_request, arguments), destination)
        for name in names:
            try:
                scribe.write_down(_recording(name, arguments), is_live=arguments.live)
            except (SoundError, RequestFailedError, IncompleteError) as error:
                if _is_about_all(error, arguments.id):
                    raise
                say(f"error: {name}: {error}")
                n_failed += 1
            except MissingExtraError as error:
                raise CommandError(str(error)) from error
    return EXIT_ERROR if n_failed else EXIT_OK


def make_request(
    arguments: argparse.Namespace, attachment: AudioAttachment
) -> BlocksRequest:
    """Put the request together."""
    prompt = [TextBlock(arguments.prompt)] if arguments.prompt else []
    return BlocksRequest(
        id=arguments.id,
        messages=[Message("user", [*prompt, AudioBlock(attachment.id)])],
        attachments=[attachment],
        language=arguments.language,
        translate=arguments.translate or None,
        timestamps=arguments.timestamps,  # told, so that nothing but speech is answered
    )


def _is_about_all(error: Exception, request_id: str) -> bool:
    """Tell whether the daemon will have none of the other files either."""
    return isinstance(error, RequestFailedError) and error.frame.id != request_id


def _names(arguments: argparse.Namespace) -> list[str]:
    names: list[str] = arguments.files
    if arguments.live:
        if names not in ([], [STDIN]):
            raise CommandError("--live listens to stdin, and to no file")
        return [STDIN]
    if not names:
        raise CommandError("no FILE; - reads raw samples from stdin")
    if names.count(STDIN) > 1:
        raise CommandError("stdin can be read once")
    return names


def _recording(name: str, arguments: argparse.Namespace) -> Recording:
    if arguments.live:
        return live_recording(arguments.samples, arguments.rate)
    return recording_of(name, arguments.samples, arguments.rate)
