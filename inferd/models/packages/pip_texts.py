"""What pip says: its failures, with what to type, and its configuration."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from inferd.models.embedded import Package
from inferd.models.pull.errors import SPACE, PullError

_CONNECTION: Final = re.compile(
    r"^WARNING: Retrying|connection broken|Failed to resolve|ConnectionError|SSLError"
    r"|ProxyError|timed out",
    re.MULTILINE,
)


_NETRC: Final = (".netrc", "_netrc")
"""Where pip looks for names and passwords of registries."""
_CERTIFICATES: Final = (
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables that name certificates: each a path, the last one several between colons."""


def download_failure(package: Package, output: list[str]) -> PullError:
    """Describe why pip did not bring a package, and what to type."""
    said = "\n".join(output)
    errors = [line for line in output if line.startswith("ERROR:")]
    reason = (
        (errors or output or ["it said nothing"])[-1].removeprefix("ERROR:").strip()
    )
    name, _, _ = package.requirement.partition("==")
    if "DO NOT MATCH THE HASHES" in said:
        return PullError(
            f"{package.requirement} is not the file with SHA-256 {package.sha256}",
            "the registry or a mirror has another file; pip config list shows which "
            "one pip asks",
        )
    if "No module named pip" in said:
        return PullError("pip is not installed", f"{sys.executable} -m ensurepip")
    if "File too large" in said or "No space left" in said:
        return PullError(
            f"{package.requirement} is larger than the file system has space for",
            SPACE,
        )
    if _CONNECTION.search(said):
        return PullError(
            f"pip could not reach the registry for {package.requirement}: {reason}",
            "check the network, $HTTPS_PROXY and pip config list, and type the same "
            "command again",
        )
    return PullError(
        f"pip could not download {package.requirement}: {reason}",
        f"pip index versions {name} lists the versions; a package without a wheel for "
        f"this machine cannot be used",
    )


def configured_paths(listed: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the paths in the output of ``pip config list``, and of the configuration.

    An index in files links to packages beside it, so its parent counts as well.
    """
    home = Path(environ.get("HOME", "/"))
    yield from _paths_of(environ, home)
    for word in _words(listed):
        if word.startswith("file:"):
            path = Path(unquote(urlsplit(word).path))
            yield path
            if path.parent not in {Path("/"), home}:
                yield path.parent
        elif word != "/" and (found := _existing(word)):
            yield found


def _paths_of(environ: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield what pip reads besides: its configuration, certificates and passwords."""
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip"
    yield home / ".pip"
    yield from (home / name for name in _NETRC)
    if given := environ.get("PIP_CONFIG_FILE"):
        yield Path(given)
    for name in _CERTIFICATES:
        for each in filter(None, environ.get(name, "").split(os.pathsep)):
            yield Path(each).absolute()


def _existing(word: str) -> Path | None:
    """Return the file that a value of the configuration may name."""
    with suppress(OSError, RuntimeError):  # no right to look; a home of nobody
        if (path := Path(word).expanduser()).exists():
            return path.absolute()
    return None


def _words(listed: str) -> Iterable[str]:
    """Split the values, each of which is one or more words in quotes."""
    for line in listed.splitlines():
        with suppress(ValueError):
            for value in shlex.split(line.partition("=")[2]):
                yield from value.replace("\\n", " ").split()
