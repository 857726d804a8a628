"""inferd generate: one answer, streamed to stdout."""

import argparse
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from inferd.cli.batch.answers import answer_prompt
from inferd.cli.batch.arguments import add_jobs_argument, add_output_arguments
from inferd.cli.batch.lines import answer_lines
from inferd.cli.connect import (
    add_id_argument,
    add_model_argument,
    add_socket_argument,
    open_client,
    serves_sample,
)
from inferd.cli.console import EXIT_OK, CommandError, stdin
from inferd.cli.numbers import finite_float, u32
from inferd.client.attachments import Attachments
from inferd.client.exchange import RequestFailedError
from inferd.client.frames import (
    BlocksAnswer,
    ClientBlocksDone,
    ClientDoneFrame,
    TextAnswer,
)
from inferd.client.media.errors import MediaError, MissingExtraError
from inferd.client.sync import FrameClient
from inferd.models.embedded import CHAT, CHAT_DEFAULTS, EMBEDDED_PREFIX
from inferd.terminal import print_json, print_line, print_stderr, print_text
from inferd.wire.blocks import (
    Attachment,
    Block,
    BlocksRequest,
    MediaBlock,
    Message,
    TextBlock,
)
from inferd.wire.codec import encode
from inferd.wire.requests import ChatMessage, GenerateRequest
from inferd.wire.responses import BlockFrame, ProgressFrame, TextDelta, TokenFrame

IMAGE: Final = "image"
MEDIA_KINDS: Final = (IMAGE, "audio")
"""Kinds of media that a prompt may have."""


SAMPLE_NOTE: Final = (
    f"note: {EMBEDDED_PREFIX}{CHAT.name} is a small sample model; for better answers set "
    "model in a [[backend]]"
)


class MediaFile(NamedTuple):
    """A media file that is sent with the prompt."""

    kind: str
    name: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "prompt",
        nargs="?",
        help="the user message; without one, or with -, it is read from a pipe",
    )
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    parser.add_argument("--temperature", type=finite_float, metavar="T")
    parser.add_argument("--top-p", type=finite_float, metavar="P")
    parser.add_argument("--top-k", type=u32, metavar="K")
    parser.add_argument("--max-tokens", type=u32, metavar="N")
    parser.add_argument("--seed", type=u32, metavar="N", help="seed of the sampler")
    parser.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        help="end the answer before this text; may be repeated",
    )
    _add_media_arguments(parser)
    add_model_argument(parser)
    add_id_argument(parser)
    parser.add_argument(
        "--progress",
        action="store_true",
        help="print the position in the queue and the prefill progress on stderr",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the frames of the answer as JSON"
    )
    parser.add_argument(
        "--count",
        action="store_true",
        help="print the number of tokens of the prompt, and generate nothing",
    )
    _add_lines_arguments(parser)
    add_socket_argument(parser)
    parser.epilog = (
        "A cancelled answer is printed as far as it was generated, and the exit code is 2. "
        "If the daemon serves the small embedded chat model, the defaults are "
        f"--temperature {CHAT_DEFAULTS.temperature:g} "
        f"--top-p {CHAT_DEFAULTS.top_p:g} --max-tokens {CHAT_DEFAULTS.max_tokens}. "
        "With --count, a prompt that does not fit is counted as well, and the exit code "
        "is 2. "
        "Images and audio are decoded by this command, which needs the packages "
        "pillow and av. "
        'With --jsonl, a line is a text, or an object with "prompt", "text" or "messages"; '
        'the output has a line for each, in order: the object with "answer", '
        '"stop_reason" and "usage" added, or with "error" if its prompt is refused, and '
        "the exit code is 2 then."
    )


def _add_media_arguments(parser: argparse.ArgumentParser) -> None:
    for kind in MEDIA_KINDS:
        parser.add_argument(
            f"--{kind}",
            action="append",
            type=partial(MediaFile, kind),
            dest="media",
            default=[],
            metavar="FILE",
            help=f"{kind} file to place before the prompt, for a model that accepts it; "
            "may be repeated",
        )


def _add_lines_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jsonl",
        action="store_true",
        help="answer each line of stdin, which are JSON or plain texts",
    )
    add_jobs_argument(parser)
    add_output_arguments(parser, "with --jsonl")


def run(arguments: argparse.Namespace) -> int:
    """Print the answer as it is generated."""
    if arguments.jsonl:
        return _answer_lines(arguments)
    if arguments.output or arguments.resume or arguments.jobs > 1:
        raise CommandError("--output, --resume and --jobs need --jsonl")
    prompt = _read_prompt(arguments.prompt)
    with (
        open_client(arguments.directory, "generation") as client,
        Attachments() as media,
    ):
        is_sample = not arguments.media and serves_sample(arguments.directory)
        if is_sample:
            _use_sample_defaults(arguments)
        frames = _ask(client, prompt, media, arguments)
        if arguments.count and not arguments.json:
            _count(frames)
            return EXIT_OK
        for number, frame in enumerate(frames):
            if is_sample and not number:
                print_stderr(SAMPLE_NOTE)
            if arguments.json:
                print_json(encode(frame))
            else:
                _print(frame)
            _check_complete(frame)
    return EXIT_OK


def _use_sample_defaults(arguments: argparse.Namespace) -> None:
    """Fill in options that suit the embedded chat model; never replace given ones."""
    options = (arguments.temperature, arguments.top_p, arguments.top_k)
    if all(option is None for option in options):
        arguments.temperature = CHAT_DEFAULTS.temperature
        arguments.top_p = CHAT_DEFAULTS.top_p
    if arguments.max_tokens is None:
        arguments.max_tokens = CHAT_DEFAULTS.max_tokens


def _ask(
    client: FrameClient, prompt: str, media: Attachments, arguments: argparse.Namespace
) -> Iterator[TextAnswer | BlocksAnswer]:
    """Send the request; over v2 if it has media, which v1 lacks."""
    if not arguments.media:
        return client.generate(make_request(prompt, arguments))
    blocks = [_attach(file, media) for file in arguments.media]
    request = make_blocks_request([*blocks, TextBlock(prompt)], media.table, arguments)
    return client.converse(request, descriptors=media.descriptors)


def _attach(file: MediaFile, media: Attachments) -> MediaBlock:
    path = Path(file.name)
    try:
        return media.picture(path) if file.kind == IMAGE else media.sound(path)
    except MediaError as error:
        raise CommandError(f"{file.name}: {error}") from error
    except MissingExtraError as error:
        raise CommandError(str(error)) from error


def _count(frames: Iterable[TextAnswer | BlocksAnswer]) -> None:
    """Print the number of tokens of the prompt, even of one that does not fit."""
    try:
        for frame in frames:
            if isinstance(frame, ClientDoneFrame):
                print_line(str(frame.usage.prompt_tokens))
            elif isinstance(frame, ClientBlocksDone):
                print_line(str(frame.usage.input_tokens))
            _check_complete(frame)
    except RequestFailedError as error:
        if isinstance(error.frame.prompt_tokens, int):
            print_line(str(error.frame.prompt_tokens))
        raise


def _answer_lines(arguments: argparse.Namespace) -> int:
    if arguments.prompt is not None or arguments.media or arguments.count:
        raise CommandError("--jsonl reads stdin, and no prompt, media or --count")
    if serves_sample(arguments.directory):
        _use_sample_defaults(arguments)
    make = partial(make_request, arguments=arguments)
    return answer_lines(arguments, "generation", partial(answer_prompt, make))


def _read_prompt(prompt: str | None) -> str:
    if prompt not in (None, "-"):
        return prompt
    if prompt is None and stdin().isatty():
        raise CommandError(
            "no prompt given", hint='inferd generate "Why is the sky blue?"'
        )
    try:
        return stdin().read()
    except UnicodeDecodeError as error:
        raise CommandError("stdin is not UTF-8") from error


def make_request(prompt: str, arguments: argparse.Namespace) -> GenerateRequest:
    """Build the v1 request."""
    system = [ChatMessage("system", arguments.system)] if arguments.system else []
    return GenerateRequest(
        id=arguments.id,
        model=arguments.model,
        messages=[*system, ChatMessage("user", prompt)],
        temperature=arguments.temperature,
        top_p=arguments.top_p,
        top_k=arguments.top_k,
        max_tokens=0 if arguments.count else arguments.max_tokens,
        seed=arguments.seed,
        stop=arguments.stop,
        progress=arguments.progress or None,
    )


def make_blocks_request(
    content: list[Block], table: list[Attachment], arguments: argparse.Namespace
) -> BlocksRequest:
    """Build the v2 request, for a prompt with media."""
    text = make_request("", arguments)
    system = [Message("system", [TextBlock(arguments.system)])]
    return BlocksRequest(
        id=text.id,
        model=text.model,
        messages=[*(system if arguments.system else []), Message("user", content)],
        attachments=table,
        temperature=text.temperature,
        top_p=text.top_p,
        top_k=text.top_k,
        max_tokens=text.max_tokens,
        seed=text.seed,
        stop=text.stop,
        progress=text.progress,
    )


def _print(frame: TextAnswer | BlocksAnswer) -> None:
    match frame:
        case TokenFrame(content=text) | BlockFrame(block=TextDelta(delta=text)):
            print_text(text)
        case ProgressFrame(status="queued"):
            print_stderr(f"queued, position {frame.position}")
        case ProgressFrame():
            print_stderr(f"prefill, {frame.processed} of {frame.total} tokens")
        case ClientDoneFrame() | ClientBlocksDone():
            print_text("\n")
        case BlockFrame():
            pass  # the request enables neither thinking nor tools


def _check_complete(frame: TextAnswer | BlocksAnswer) -> None:
    """Raise ``CommandError`` if the frame ends an incomplete answer."""
    if isinstance(frame, ClientDoneFrame | ClientBlocksDone) and frame.stop_reason in (
        "cancelled",
        "error",
    ):
        raise CommandError(f"the answer is not complete: {frame.stop_reason}")
