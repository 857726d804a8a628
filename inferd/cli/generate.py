"""inferd generate: one answer, streamed to stdout."""

import argparse
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from inferd.cli.console import EXIT_OK, CommandError, stdin
from inferd.cli.daemon import add_id_argument, add_socket_argument, asking
from inferd.cli.numbers import finite, u32
from inferd.client.attachments import Attachments
from inferd.client.exchange import RequestFailedError
from inferd.client.frames import BlocksAnswer, Done, DoneBlocks, TextAnswer
from inferd.client.media import MediaError, MissingExtraError
from inferd.client.sync import Client
from inferd.terminal import json_line, line, prose, say
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
KINDS: Final = (IMAGE, "audio")
"""Of media that a prompt may come with."""


class Medium(NamedTuple):
    """A file that comes with the prompt."""

    kind: str
    name: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("prompt", help="what to say to the model; - reads stdin")
    parser.add_argument("--system", metavar="TEXT", help="a system message before it")
    parser.add_argument("--temperature", type=finite, metavar="T")
    parser.add_argument("--top-p", type=finite, metavar="P")
    parser.add_argument("--top-k", type=u32, metavar="K")
    parser.add_argument("--max-tokens", type=u32, metavar="N")
    parser.add_argument("--seed", type=u32, metavar="N", help="of the sampler")
    parser.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        help="end the answer before this text; may be given again",
    )
    for kind in KINDS:
        parser.add_argument(
            f"--{kind}",
            action="append",
            type=partial(Medium, kind),
            dest="media",
            default=[],
            metavar="FILE",
            help="before the prompt, for a model that takes it; may be given again",
        )
    add_id_argument(parser)
    parser.add_argument(
        "--progress", action="store_true", help="tell the way to the answer on stderr"
    )
    parser.add_argument("--json", action="store_true", help="print frames as they come")
    parser.add_argument(
        "--count",
        action="store_true",
        help="print how many tokens the prompt has, and ask for no answer",
    )
    add_socket_argument(parser)
    parser.epilog = (
        "An answer that somebody cancels is printed as far as it came, and is an error: "
        "exit code 2. So is a prompt that is counted and does not fit, after its count. "
        "Pictures and sound are decoded here, which takes: pip install 'inferd[media]'."
    )


def run(arguments: argparse.Namespace) -> int:
    """Stream the answer."""
    prompt = _piped() if arguments.prompt == "-" else arguments.prompt
    with asking(arguments.directory, "generation") as client, Attachments() as media:
        frames = _ask(client, prompt, media, arguments)
        if arguments.count and not arguments.json:
            _count(frames)
            return EXIT_OK
        for frame in frames:
            if arguments.json:
                json_line(encode(frame))
            else:
                _print(frame)
            _refuse_broken(frame)
    return EXIT_OK


def _ask(
    client: Client, prompt: str, media: Attachments, arguments: argparse.Namespace
) -> Iterator[TextAnswer | BlocksAnswer]:
    """Ask by v2 where there is more than text: v1 has nothing else."""
    if not arguments.media:
        return client.generate(make_request(prompt, arguments))
    blocks = [_attached(each, media) for each in arguments.media]
    request = make_blocks_request([*blocks, TextBlock(prompt)], media.table, arguments)
    return client.converse(request, descriptors=media.descriptors)


def _attached(medium: Medium, media: Attachments) -> MediaBlock:
    path = Path(medium.name)
    try:
        return media.picture(path) if medium.kind == IMAGE else media.sound(path)
    except MediaError as error:
        raise CommandError(f"{medium.name}: {error}") from error
    except MissingExtraError as error:
        raise CommandError(str(error)) from error


def _count(frames: Iterable[TextAnswer | BlocksAnswer]) -> None:
    """Print the tokens of a prompt, also of one that does not fit."""
    try:
        for frame in frames:
            if isinstance(frame, Done):
                line(str(frame.usage.prompt_tokens))
            elif isinstance(frame, DoneBlocks):
                line(str(frame.usage.input_tokens))
            _refuse_broken(frame)
    except RequestFailedError as error:
        if isinstance(error.frame.prompt_tokens, int):
            line(str(error.frame.prompt_tokens))
        raise


def _piped() -> str:
    try:
        return stdin().read()
    except UnicodeDecodeError as error:
        raise CommandError("stdin is not UTF-8") from error


def make_request(prompt: str, arguments: argparse.Namespace) -> GenerateRequest:
    """Put the request together."""
    system = [ChatMessage("system", arguments.system)] if arguments.system else []
    return GenerateRequest(
        id=arguments.id,
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
    """Put the request together that has more than text."""
    text = make_request("", arguments)
    system = [Message("system", [TextBlock(arguments.system)])]
    return BlocksRequest(
        id=text.id,
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
            prose(text)
        case ProgressFrame(status="queued"):
            say(f"queued, position {frame.position}")
        case ProgressFrame():
            say(f"prefill, {frame.processed} of {frame.total} tokens")
        case Done() | DoneBlocks():
            prose("\n")
        case BlockFrame():
            pass  # neither thoughts nor calls are asked for


def _refuse_broken(frame: TextAnswer | BlocksAnswer) -> None:
    """Let no answer that was cut short look like a whole one."""
    if isinstance(frame, Done | DoneBlocks) and frame.stop_reason in (
        "cancelled",
        "error",
    ):
        raise CommandError(f"the answer is not complete: {frame.stop_reason}")
