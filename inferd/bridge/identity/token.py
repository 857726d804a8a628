"""Tokens: how they are made, written down and compared; pure but for randomness given."""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

PREFIX: Final = "inferd-"
"""The beginning of a token, by which it is told from other words in its place."""
LEAST_TOKEN_CHARS: Final = 20
"""From this length on a text is somebody's token; ``sk-no-key-required`` has two less."""
ID_BYTES: Final = 6
SECRET_BYTES: Final = 32
"""Random bytes of a secret: too many to guess, so that a plain hash keeps it."""
_TOKEN: Final = re.compile(r"inferd-([0-9a-f]{12})-([0-9a-f]{64})\Z")
_NO_HASH: Final = sha256(b"").hexdigest()

OWN_USER: Final = "local"
"""The principal of the bridge's own user, who needs no token."""
Scope = Literal["inference", "models", "admin", "discovery", "chats"]
SCOPES: Final[tuple[Scope, ...]] = ("inference", "models", "admin", "discovery")
"""Those of the bridge's own user. ``discovery`` is for what stands in front of bridges: it lists
models and reads metrics, and asks no model. ``chats`` reads the chats of all, so nobody has it
whom the operator has not given it to."""
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class TokenRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a token."""

    id: Annotated[str, Meta(pattern=r"^[0-9a-f]{12}\Z")]
    """By which it is found."""
    name: Name
    """Of its holder, the principal."""
    sha256: Digest
    """Of its secret part."""
    scopes: tuple[Scope, ...] = ("inference",)
    quota: Annotated[int, Meta(ge=1)] | None = None
    """Tokens of prompts and answers a day, in UTC."""

    def __post_init__(self) -> None:
        """Refuse the name of the bridge's own user, who would share what is his.

        Raises:
            ValueError: it is that.
        """
        if self.name == OWN_USER:
            raise ValueError(f"the name {OWN_USER} is that of the bridge's own user")


def make_token(random: bytes) -> tuple[str, str, str]:
    """Return a token, its id and the digest of its secret.

    Args:
        random: ``ID_BYTES`` and ``SECRET_BYTES`` of randomness.
    """
    found, secret = random[:ID_BYTES].hex(), random[ID_BYTES:].hex()
    return f"{PREFIX}{found}-{secret}", found, sha256(secret.encode()).hexdigest()


def parse_record(fields: Mapping[str, object]) -> TokenRecord:
    """Return the record of these fields.

    Raises:
        ValueError: one is not allowed; the text says which, and what is.
    """
    try:
        return msgspec.convert(fields, TokenRecord)
    except msgspec.ValidationError as error:
        raise ValueError(f"{error}; scopes are {', '.join(SCOPES)}") from error


def by_id(records: Iterable[TokenRecord]) -> dict[str, TokenRecord]:
    """Return the records by the id by which they are found."""
    return {record.id: record for record in records}


def looks_like_token(text: str) -> bool:
    """Tell whether a text claims to be a token, and not only fills its place.

    Libraries insist on a key; the words that people write there, as ``none``, are short, and
    what a service has given out is not.
    """
    return text.startswith(PREFIX) or len(text) >= LEAST_TOKEN_CHARS


def find_token(text: str, records: Mapping[str, TokenRecord]) -> TokenRecord | None:
    """Return the record of a token, or ``None`` if it is none of them.

    One hash is computed and one comparison made whatever the text is.
    """
    match = _TOKEN.match(text)
    token_id, secret = (match[1], match[2]) if match else ("", "")
    record = records.get(token_id)
    digest = sha256(secret.encode()).hexdigest()
    is_same = compare_digest(digest, record.sha256 if record else _NO_HASH)
    return record if is_same and record is not None else None
