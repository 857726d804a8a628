"""What is refused by its head alone: other hosts, web pages, ambiguous lengths; pure.

A page in a browser on this machine can send requests to loopback. It cannot choose ``Host``,
which is that of the page where its name was made to point here (DNS rebinding), and it has an
``Origin``. The bridge's own page has the bridge's own address in both.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferd.bridge.translation.failures import BridgeError, Reason

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class HeadRules:
    """What a request's head may say.

    Args:
        hosts: names in ``Host``, without a port.
        origins: pages that may send requests.
    """

    hosts: frozenset[str]
    origins: frozenset[str] = frozenset()

    def check(
        self,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        is_unix: bool = False,
        is_public: bool = False,
    ) -> str:
        """Check a head.

        Args:
            headers: of the request.
            is_unix: whether it came by a Unix socket, where no page can connect: any host.
            is_public: whether it asks for the bridge's own page, to which links may lead.

        Returns:
            The origin of the page that sent the request; empty if none did.

        Raises:
            BridgeError: it is refused.
        """
        found = _by_name(headers)
        if "transfer-encoding" in found and "content-length" in found:
            raise BridgeError(
                Reason.INVALID_REQUEST,
                "content-length and transfer-encoding contradict each other",
            )
        if not is_unix:
            self._check_host(found.get("host", []))
        _check_coding(found.get("content-encoding", []))
        hosts, origins = found.get("host", []), found.get("origin", [])
        if self._is_own(hosts, origins):
            origins = []
        origin = self._check_origin(origins)
        follows_link = is_public and found.get("sec-fetch-mode") == ["navigate"]
        if not origin and not follows_link:
            _check_fetch_site(found.get("sec-fetch-site", []))
        return origin

    def _is_own(self, hosts: Sequence[str], origins: Sequence[str]) -> bool:
        """Tell whether a request comes from the bridge's own page.

        Its origin is the address that the request was sent to, and that is a name of the
        bridge, which is checked here because requests by Unix sockets may have any.
        """
        if len(hosts) != 1 or len(origins) != 1:
            return False
        scheme, _, place = origins[0].partition("://")
        is_same = scheme in {"http", "https"} and place.lower() == hosts[0].lower()
        return is_same and host_name(hosts[0]) in self.hosts

    def _check_host(self, values: Sequence[str]) -> None:
        if len(values) != 1 or host_name(values[0]) not in self.hosts:
            raise BridgeError(
                Reason.FORBIDDEN,
                "Host is not a name of this bridge; bridge.hosts adds names",
            )

    def _check_origin(self, values: Sequence[str]) -> str:
        if not values:
            return ""
        if len(values) != 1 or values[0] not in self.origins:
            raise BridgeError(
                Reason.FORBIDDEN,
                "web pages may not use this bridge; bridge.origins adds them",
            )
        return values[0]


def _check_coding(values: Sequence[str]) -> None:
    """Refuse compressed bodies, whose size nobody knows before."""
    if not {"", "identity"}.issuperset(map(str.lower, values)):
        raise BridgeError(Reason.CODING, "bodies are not compressed here")


def _check_fetch_site(values: Sequence[str]) -> None:
    """Refuse what a page fetches without ``Origin``, as pictures and scripts are."""
    if not {"none", "same-origin"}.issuperset(values):
        raise BridgeError(Reason.FORBIDDEN, "web pages may not use this bridge")


def cors_headers(origin: str) -> dict[str, str]:
    """Return the headers that let a page of this origin read an answer."""
    if not origin:
        return {}
    return {"access-control-allow-origin": origin, "vary": "origin"}


def preflight_headers(origin: str) -> dict[str, str]:
    """Return the headers that answer a browser's question about a request to come."""
    return {
        **cors_headers(origin),
        "access-control-allow-methods": "GET, POST, PUT, DELETE, OPTIONS",
        "access-control-allow-headers": "authorization, *",
        "access-control-max-age": "600",
    }


def host_name(value: str) -> str:
    """Return the name in a ``Host`` header, without its port."""
    name, colon, port = value.rpartition(":")
    has_port = bool(colon) and (not port or port.isdecimal())
    return (name if has_port else value).lower()


def credential_of(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """Return what a request has in the place of a token; may be empty.

    One in a form that is not known is returned as it is, and is no token then.

    A token that is the password of a URL arrives as ``Basic``. What stands in front of several
    bridges has such URLs, and passes on the token of its caller besides, which counts.
    """
    found = _by_name(headers)
    given = [value.partition(" ") for value in found.get("authorization", [])]
    by_scheme = {scheme.lower(): text.strip() for scheme, _, text in reversed(given)}
    if "bearer" in by_scheme:
        return by_scheme["bearer"]
    if "x-api-key" in found:
        return found["x-api-key"][0]
    if "basic" in by_scheme:
        return _password(by_scheme["basic"])
    return next(iter(found.get("authorization", [])), "")


def _password(credentials: str) -> str:
    """Return the password of ``Basic`` credentials; empty where there is none."""
    try:
        decoded = b64decode(credentials, validate=True).decode()
    except ValueError:
        return ""
    return decoded.partition(":")[2]


def content_length(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """Return the length that a body is said to have; the parser has checked its form."""
    values = _by_name(headers).get("content-length", [])
    return int(values[0]) if values and values[0].isdecimal() else None


def header_of(headers: Sequence[tuple[bytes, bytes]], name: str) -> str:
    """Return the first value of a header, whose name is lower-case; may be empty."""
    return next(iter(_by_name(headers).get(name, [])), "")


def content_type(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """Return the media type of a body, with its parameters; may be empty."""
    return header_of(headers, "content-type")


def header_values(headers: Sequence[tuple[bytes, bytes]], name: str) -> list[str]:
    """Return the values of a header, whose name is given in small letters."""
    return _by_name(headers).get(name, [])


def _by_name(headers: Sequence[tuple[bytes, bytes]]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.decode("latin-1").lower(), []).append(
            value.decode("latin-1").strip()
        )
    return found
