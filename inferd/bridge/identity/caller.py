"""Decide who asks, and what they may do."""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import trio

from inferd.bridge.identity.quota import DailyQuota
from inferd.bridge.identity.tcp_owner import ConnectionOwners, TcpEnd
from inferd.bridge.identity.throttle import FailureThrottle
from inferd.bridge.identity.token import (
    ID_BYTES,
    OWN_USER,
    SCOPES,
    SECRET_BYTES,
    Scope,
    TokenRecord,
    find_token,
    looks_like_token,
    make_token,
)
from inferd.bridge.identity.token_file import ApiTokens, TokenFileError
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.limits.bridge import DEBUG_TOKENS

SIGNED_IN: Final = "debug:"
"""Beginning of the principals who signed in by a name."""


@dataclass(slots=True, kw_only=True)
class HttpPeer:
    """The other end of a connection."""

    uid: int | None = None
    """Of its process, by the kernel's word; of a TCP connection once it is looked up."""
    is_looked_up: bool = False
    principal: str = ""
    """Of its latest request, once that is known."""
    client: TcpEnd | None = None
    """Of a TCP connection."""
    server: TcpEnd | None = None

    @property
    def is_unix(self) -> bool:
        """Whether it is a Unix socket's."""
        return self.client is None

    @property
    def holder(self) -> str:
        """By whom connections are counted."""
        return self.principal or self.sender

    @property
    def sender(self) -> str:
        """By whom failures are counted."""
        if self.client is None or self.uid is not None:
            return f"uid {self.uid}"
        return self.client.address


@dataclass(frozen=True, slots=True)
class HttpCaller:
    """Who asks."""

    principal: str
    scopes: tuple[Scope, ...]
    quota: int | None = None
    """Tokens a day."""


class Callers:
    """Recognises callers.

    Args:
        tokens: the valid ones.
        own_uid: the bridge's own user, who is recognised by the kernel's word; ``None``
            where that user needs a token, too.
        quota: counts their tokens.
        owners: tells whose TCP connections are.
    """

    def __init__(
        self,
        tokens: ApiTokens,
        own_uid: int | None,
        quota: DailyQuota | None = None,
        owners: ConnectionOwners | None = None,
    ) -> None:
        self._tokens = tokens
        self._own_uid = own_uid
        self._signed_in: OrderedDict[str, TokenRecord] = OrderedDict()
        self._throttle = FailureThrottle()
        self._quota = quota or DailyQuota()
        self._owners = owners or ConnectionOwners()

    def identify(self, credential: str, peer: HttpPeer) -> HttpCaller:
        """Return who asks.

        Args:
            credential: what the request has in the place of a token; may be empty, or a
                word that a client library insists on.
            peer: the other end.

        Raises:
            BridgeError: the token is not valid, or there is none and the other end is not
                the bridge's own user.
        """
        if looks_like_token(credential):
            return self._by_token(credential, peer)
        uid = self._uid_of(peer)
        if uid is not None and uid == self._own_uid:
            return HttpCaller(OWN_USER, SCOPES)
        raise BridgeError(
            Reason.UNAUTHENTICATED,
            "a token is needed: Authorization: Bearer inferd-…; `inferd bridge token add` "
            "makes one",
        )

    def _by_token(self, credential: str, peer: HttpPeer) -> HttpCaller:
        self._uid_of(peer)
        sender = peer.sender
        if wait_s := self._throttle.wait_s(sender, trio.current_time()):
            raise BridgeError(
                Reason.TOO_MANY_FAILURES,
                "too many tokens that are not valid",
                retry_after_s=wait_s,
            )
        try:
            known = {**self._tokens.records(), **self._signed_in}
            record = find_token(credential, known)
        except TokenFileError as error:
            raise BridgeError(Reason.UNAVAILABLE, "tokens cannot be read") from error
        if record is None:
            self._throttle.failed(sender, trio.current_time())
            raise BridgeError(
                Reason.UNAUTHENTICATED,
                "the token is not valid; the bridge's own user needs none, or a short word",
            )
        name = (
            f"{SIGNED_IN}{record.name}" if record.id in self._signed_in else record.name
        )
        return HttpCaller(name, record.scopes, record.quota)

    def sign_in(self, name: str) -> str:
        """Return a new token for a name, which is valid while this process runs.

        Only ``--development`` does; the principal begins with ``debug:``, which no token of
        the file has.

        Bounds: ``DEBUG_TOKENS``; the oldest is forgotten first.
        """
        token, token_id, digest = make_token(os.urandom(ID_BYTES + SECRET_BYTES))
        self._signed_in[token_id] = TokenRecord(id=token_id, name=name, sha256=digest)
        while len(self._signed_in) > DEBUG_TOKENS:
            self._signed_in.popitem(last=False)
        return token

    def _uid_of(self, peer: HttpPeer) -> int | None:
        if peer.client is None or peer.server is None:
            return peer.uid
        if not peer.is_looked_up:
            peer.uid = self._owners.owner_of(peer.client, peer.server)
            peer.is_looked_up = True
        return peer.uid

    def check_scopes(self, caller: HttpCaller, scopes: Sequence[Scope]) -> None:
        """Check that a caller has one of some scopes.

        Raises:
            BridgeError: not this, or the tokens of the day are used up.
        """
        if not any(scope in caller.scopes for scope in scopes):
            raise BridgeError(
                Reason.FORBIDDEN,
                f"the token of {caller.principal} lacks scope {' or '.join(scopes)}",
            )
        self._check_quota(caller)

    def _check_quota(self, caller: HttpCaller) -> None:
        if caller.quota is None:
            return
        now_s = time.time()
        if wait_s := self._quota.wait_s(caller.principal, caller.quota, now_s):
            raise BridgeError(
                Reason.QUOTA,
                f"the {caller.quota} tokens a day of {caller.principal} are used up, or "
                "those that are left are reserved for its requests",
                retry_after_s=wait_s,
            )

    @contextmanager
    def spending(
        self,
        caller: HttpCaller,
        n_most: int,
        spent: Callable[[], int],
        *,
        is_told_late: bool = False,
    ) -> Iterator[Callable[[int], None]]:
        """Reserve tokens of a caller's quota while inside; count those that were used then.

        Yields a function that is told once fewer can be used, as when a prompt is counted.

        Args:
            caller: who asks.
            n_most: tokens that the request may use.
            spent: tells how many it has used.
            is_told_late: whether that is known once it is answered, and not before. One that
                nobody waits for any more counts all that it reserved then: the daemon may
                have computed it.

        Raises:
            BridgeError: none are left, or the block raised it.
        """
        if caller.quota is None:
            yield lambda _: None
            return
        self._check_quota(caller)
        name = caller.principal
        n_reserved = self._quota.reserve(name, caller.quota, n_most, time.time())
        n_untold = n_reserved if is_told_late else 0

        def lower(n_most: int) -> None:
            nonlocal n_reserved
            n_reserved = self._quota.lower(name, n_reserved, n_most)

        try:
            yield lower
            n_untold = 0
        except BridgeError:
            n_untold = 0
            raise
        finally:
            n_tokens = spent() or n_untold
            self._quota.settle(name, n_reserved, n_tokens, time.time())

    def quota_headers(self, caller: HttpCaller) -> dict[str, str]:
        """Return what a caller is told of its quota; nothing without one."""
        if caller.quota is None:
            return {}
        now_s = time.time()
        left = self._quota.left(caller.principal, caller.quota, now_s)
        return {
            "x-ratelimit-limit-tokens": str(caller.quota),
            "x-ratelimit-remaining-tokens": str(left),
            "x-ratelimit-reset-tokens": f"{self._quota.reset_s(now_s):.0f}s",
        }
