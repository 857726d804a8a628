"""The failures of a pull, each with what to type."""

import re
from dataclasses import dataclass
from typing import Final

from inferd.installation import command_to_add
from inferd.models.pull.messages import Failure, FailureCode

AGAIN: Final = "type the same command again: it goes on where it stopped"

SPACE: Final = (
    "inferd model list shows what could be removed; inferd model prune frees what no model "
    "uses, the beginnings of interrupted pulls among it; INFERD_MODELS=DIRECTORY has the "
    "store on another file system"
)
"""What to type where the file system of a store is full."""


@dataclass
class PullError(Exception):
    """A model could not be pulled; the store is as it was."""

    text: str
    """One line."""
    hint: str = ""
    """What to type; empty if that follows from the text."""

    def __str__(self) -> str:
        return self.text


class StalledError(PullError):
    """The server sends nothing, or next to nothing."""


class DroppedError(PullError):
    """The connection ended before the file did."""


_SPELLING: Final = "check the spelling; for what is not public, set HF_TOKEN to a token that may read it"
_ADDRESS: Final = (
    "check the address; of what is not public, bring the file yourself: inferd model "
    "import FILE"
)
_LATER: Final = "that may pass: type the same command again later"
_LATER_STATUS: Final = re.compile(r"(408|425|429|5\d\d)\b")
"""Answers of a server that has too much to do, or an error of its own."""
_GATED: Final = (
    "set HF_TOKEN to a token that may read it, and accept the conditions that the page of "
    "the repository has"
)
_FILE: Final = (
    "give the address of the file, as a link to download has it; for a model of a hub: "
    "inferd model pull hf:OWNER/REPO"
)
_TEXTS: Final[dict[FailureCode, tuple[str, str]]] = {
    "unreachable": (
        "{host} cannot be reached: {detail}",
        "check the name, the network and $HTTPS_PROXY",
    ),
    "certificate": (
        "the certificate of {host} is not accepted: {detail}",
        "for a certificate authority of your own: --ca-file FILE",
    ),
    "status": ("{host} answers: {detail}", "check the address"),
    "not_found": (
        "{host} answers: {detail}",
        _SPELLING,
    ),
    "not_allowed": (
        "{host} answers: {detail}",
        _GATED,
    ),
    "redirect": (
        "{host} redirects to {detail}, which is refused",
        "give the address where the file is",
    ),
    "web_page": (
        "{host} sends a web page instead of a file: {detail}",
        _FILE,
    ),
    "stalled": ("{host} does not answer: {detail}", AGAIN),
    "dropped": ("{host} ended the connection: {detail}", AGAIN),
    "invalid": ("{host} sends what is not a valid response: {detail}", ""),
    "not_installed": (
        "downloads need packages that are not installed: {detail}",
        command_to_add("models"),
    ),
}


def error_of(failure: Failure, host: str, *, is_hub: bool) -> PullError:
    """Describe what the downloader reports, in words of this process.

    Args:
        failure: as it was sent.
        host: that was asked.
        is_hub: whether it is the hub, or has a file of it.
    """
    text, hint = _TEXTS[failure.code]
    detail = " ".join(failure.detail.split())
    if failure.code == "status" and _LATER_STATUS.match(detail):
        hint = _LATER
    if failure.code in {"not_found", "not_allowed"} and not is_hub:
        hint = _ADDRESS
    kinds = {"stalled": StalledError, "dropped": DroppedError}
    kind = kinds.get(failure.code, PullError)
    return kind(text.format(host=host, detail=detail), hint)
