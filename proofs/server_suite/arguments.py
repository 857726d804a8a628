"""From the options of llama.cpp's server to the configuration of a daemon and a bridge."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Table = dict[str, Any]

LOCAL_ORIGINS: Final = tuple(
    f"http://{host}{port}"
    for host in ("localhost", "127.0.0.1", "[::1]")
    for port in ("", ":3000", ":8080")
)
"""What stands for ``--cors-origins localhost``: the bridge takes whole origins."""
ALL_ORIGINS: Final = ("localhost", "origin", "web.mydomain.fr")
"""What stands for the pages of all origins, which the other server admits by default."""
NAMES: Final = (
    *("gpt-3.5-turbo", "gpt-3.5-turbo-instruct", "gpt-4.1", "text-embedding-3-small"),
    *("codellama70b", "davinci-002", "test"),
)
"""Models that clients name: the other server answers for any name, the daemon for its own."""


@dataclass(frozen=True)
class Wanted:
    """What stands for the other server."""

    daemon: Mapping[str, Any]
    """Tables of the daemon's configuration."""
    bridge: Mapping[str, Any]
    """The table of the bridge."""
    port: int


def wanted(arguments: Sequence[str], *, takes_any_name: bool = True) -> Wanted:
    """Read the options of the other server.

    Args:
        arguments: without the program.
        takes_any_name: whether the models that clients name are names of ours.
    """
    given, _ = _parser().parse_known_args(arguments)
    if given.embedding:
        model, kind = "embedded:embed", "embed"
    elif given.reranking:
        model, kind = "embedded:rerank", "rerank"
    else:
        model, kind = "embedded:chat", "generate"
    names = [*(given.alias or kind).split(",")]
    names += [each for each in NAMES if takes_any_name and each not in names]
    backend: Table = {
        "name": names[0],
        "aliases": names[1:],
        "kind": "llamacpp",
        "model": model,
        "n_ctx": given.ctx_size // given.parallel,
    }
    bridge: Table = {"default_max_tokens": given.n_predict}
    is_local = given.cors_origins == "localhost" or given.tools
    bridge["origins"] = [*(LOCAL_ORIGINS if is_local else ALL_ORIGINS)]
    if given.api_key:
        bridge["own_user"] = False
    daemon = {"backend": [backend], "admission": {"max_active": given.parallel}}
    return Wanted(daemon, bridge, given.port)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--alias")
    parser.add_argument("--ctx-size", type=int, default=4096)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--n-predict", type=int, default=4096)
    parser.add_argument("--embedding", action="store_true")
    parser.add_argument("--reranking", action="store_true")
    parser.add_argument("--cors-origins")
    parser.add_argument("--tools")
    parser.add_argument("--api-key")
    return parser
