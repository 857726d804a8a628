"""What the helper does, and for whom; pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from inferd.config.bridge_helper import HelperSettings
from inferd.models.embedded import EMBEDDED_PREFIX
from inferd.models.pull.errors import PullError
from inferd.models.pull.source import HTTPS, HUB, parse_source
from inferd.models.store.names import InvalidNameError, check_name
from inferd.terminal import escape
from inferd.wire.management import FailureKind, HelperFailure, HelperRequest

_AMBIGUOUS: Final = re.compile(r"[%\\?#]|/\.{0,2}(?=/|\Z)")
"""Parts of the path of an address that a server may read as another path."""
_NAMED: Final = ("show", "remove", "load", "unload")
_OF_THE_STORE: Final = ("show", "remove")


class HelperRefusedError(Exception):
    """A request that is not carried out.

    Args:
        code: why.
        text: a sentence for people, without paths of the machine.
        retry_after_s: seconds until it may be, if that is known.
    """

    def __init__(
        self, code: FailureKind, text: str, *, retry_after_s: float | None = None
    ) -> None:
        self.code: FailureKind = code
        self.retry_after_s = retry_after_s
        super().__init__(text)

    @property
    def frame(self) -> HelperFailure:
        """What the bridge is told."""
        return HelperFailure(
            code=self.code, message=escape(str(self)), retry_after_s=self.retry_after_s
        )


@dataclass(frozen=True)
class HelperPolicy:
    """The rules of one helper.

    Args:
        settings: of the operator.
        uids: of the users who may ask it.
    """

    settings: HelperSettings
    uids: frozenset[int]

    def admits(self, uid: int) -> bool:
        """Tell whether a user may ask anything."""
        return uid in self.uids

    def check(self, request: HelperRequest) -> None:
        """Check what a request asks for, as far as that follows from the request.

        Raises:
            HelperRefusedError: it is not allowed, or not valid.
        """
        command = request.command
        if command not in self.settings.allow:
            raise HelperRefusedError(
                "not_allowed",
                f"the operator does not allow {command} here; allow in [bridge_helper] of "
                "the configuration has what is allowed",
            )
        if command in _NAMED and not request.model:
            raise HelperRefusedError("invalid_request", f"{command} needs a model")
        if command in _OF_THE_STORE or (command == "pull" and request.model):
            check_model_name(request.model)
        if command == "pull":
            self.check_source(canonical_source(request.source, request.sha256))

    def check_source(self, source: str) -> None:
        """Check that models of a source may be pulled and removed.

        Raises:
            HelperRefusedError: they may not.
        """
        if not is_allowed_source(source, self.settings.allow_sources):
            raise HelperRefusedError(
                "not_allowed",
                f"the operator does not allow the source {source}; allow_sources in "
                "[bridge_helper] of the configuration has what is allowed",
            )


def check_model_name(name: str) -> None:
    """Check a name of the store.

    Raises:
        HelperRefusedError: it is none.
    """
    try:
        check_name(name)
    except InvalidNameError as error:
        raise HelperRefusedError("invalid_request", str(error)) from error


def canonical_source(text: str, sha256: str | None) -> str:
    """Return a source as manifests have it.

    Raises:
        HelperRefusedError: it is none that the helper pulls from.
    """
    if text.startswith(EMBEDDED_PREFIX) and sha256 is None:
        return text
    if not text.startswith((HTTPS, HUB)):
        raise HelperRefusedError(
            "invalid_request",
            "a source is hf:OWNER/REPO[:QUANT|/FILE][@REVISION], https://HOST/PATH with "
            "its SHA-256, or embedded:NAME",
        )
    try:
        source = str(parse_source(text, sha256))
    except PullError as error:
        raise HelperRefusedError("invalid_request", str(error)) from error
    if text.startswith(HTTPS) and _AMBIGUOUS.search(text.removeprefix(HTTPS)):
        raise HelperRefusedError(
            "invalid_request",
            "the address of a file has no query, no escapes, and no empty, . or .. parts",
        )
    return source


def is_allowed_source(source: str, allowed: Sequence[str]) -> bool:
    """Tell whether a source is one of those allowed, or below one.

    What follows an entry begins with the character that ends it, or with one that ends a part
    of such a source: ``hf:ada/small`` allows ``hf:ada/small:Q8_0`` and not ``hf:ada/smaller``.
    """
    return any(_is_below(source, entry) for entry in allowed)


def _is_below(source: str, entry: str) -> bool:
    if not source.startswith(entry):
        return False
    rest = source[len(entry) :]
    ends = "/" if entry.startswith(HTTPS) else "/:@"
    return not rest or entry[-1] in "/:" or rest[0] in ends
