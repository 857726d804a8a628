"""inferd generate: one answer, streamed to stdout."""

import argparse

from inferd.cli.console import EXIT_OK, CommandError, data, printable, say, stdin
from inferd.cli.daemon import add_id_argument, add_socket_argument, asking
from inferd.cli.numbers import finite, u32
from inferd.client.exchange import RequestFailedError
from inferd.client.frames import Done, TextAnswer
from inferd.client.sync import Client
from inferd.wire.codec import encode
from inferd.wire.requests import ChatMessage, GenerateRequest
from inferd.wire.responses import ProgressFrame, TokenFrame


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
        "exit code 2. So is a prompt that is counted and does not fit, after its count."
    )


def run(arguments: argparse.Namespace) -> int:
    """Stream the answer."""
    prompt = _piped() if arguments.prompt == "-" else arguments.prompt
    request = make_request(prompt, arguments)
    with asking(arguments.directory, "generation") as client:
        if arguments.count and not arguments.json:
            _count(client, request)
            return EXIT_OK
        for frame in client.generate(request):
            if arguments.json:
                data(encode(frame).decode(), end="")
            else:
                _print(frame)
            _refuse_broken(frame)
    return EXIT_OK


def _count(client: Client, request: GenerateRequest) -> None:
    """Print the tokens of a prompt, also of one that does not fit."""
    try:
        for frame in client.generate(request):
            if isinstance(frame, Done):
                data(str(frame.usage.prompt_tokens))
            _refuse_broken(frame)
    except RequestFailedError as error:
        if isinstance(error.frame.prompt_tokens, int):
            data(str(error.frame.prompt_tokens))
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


def _print(frame: TextAnswer) -> None:
    match frame:
        case TokenFrame():
            data(printable(frame.content), end="")
        case ProgressFrame(status="queued"):
            say(f"queued, position {frame.position}")
        case ProgressFrame():
            say(f"prefill, {frame.processed} of {frame.total} tokens")
        case Done():
            data("")


def _refuse_broken(frame: TextAnswer) -> None:
    """Let no answer that was cut short look like a whole one."""
    if isinstance(frame, Done) and frame.stop_reason in ("cancelled", "error"):
        raise CommandError(f"the answer is not complete: {frame.stop_reason}")
