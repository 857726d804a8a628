"""Decide who asks, and what they may do."""

import time
from dataclasses import dataclass
from functools import partial

import trio

from inferd.bridge.identity.quota import DailyQuota
from inferd.bridge.identity.tcp_owner import TcpEnd, owner_of
from inferd.bridge.identity.throttle import FailureThrottle
from inferd.bridge.identity.token import (
    OWN_USER,
    SCOPES,
    Scope,
    find_token,
    looks_like_token,
)
from inferd.bridge.identity.token_file import ApiTokens, TokenFileError
from inferd.bridge.translation.failures import BridgeError, Reason


@dataclass(slots=True, kw_only=True)
class HttpPeer:
    """The other end of a connection."""

    uid: int | None = None
    """Of its process, by the kernel's word; of a TCP connection once it is looked up."""
    is_looked_up: bool = False
    client: TcpEnd | None = None
    """Of a TCP connection."""
    server: TcpEnd | None = None

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
        own_uid: the bridge's own user, who is recognised by the kernel's word.
    """

    def __init__(self, tokens: ApiTokens, own_uid: int) -> None:
        self._tokens = tokens
        self._own_uid = own_uid
        self._throttle = FailureThrottle()
        self._quota = DailyQuota()

    async def identify(self, credential: str, peer: HttpPeer) -> HttpCaller:
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
            return await self._by_token(credential, peer)
        if await self._uid_of(peer) == self._own_uid:
            return HttpCaller(OWN_USER, SCOPES)
        raise BridgeError(
            Reason.UNAUTHENTICATED,
            "a token is needed: Authorization: Bearer inferd-…; `inferd bridge token add` "
            "makes one",
        )

    async def _by_token(self, credential: str, peer: HttpPeer) -> HttpCaller:
        await self._uid_of(peer)
        sender = peer.sender
        if wait_s := self._throttle.wait_s(sender, trio.current_time()):
            raise BridgeError(
                Reason.TOO_MANY_FAILURES,
                "too many tokens that are not valid",
                retry_after_s=wait_s,
            )
        try:
            record = find_token(credential, self._tokens.records())
        except TokenFileError as error:
            raise BridgeError(Reason.UNAVAILABLE, "tokens cannot be read") from error
        if record is None:
            self._throttle.failed(sender, trio.current_time())
            raise BridgeError(Reason.UNAUTHENTICATED, "the token is not valid")
        return HttpCaller(record.name, record.scopes, record.quota)

    async def _uid_of(self, peer: HttpPeer) -> int | None:
        if peer.client is None or peer.server is None:
            return peer.uid
        if not peer.is_looked_up:
            look = partial(owner_of, peer.client, peer.server)
            peer.uid = await trio.to_thread.run_sync(look)
            peer.is_looked_up = True
        return peer.uid

    def check_scope(self, caller: HttpCaller, scope: Scope) -> None:
        """Check what a caller may do.

        Raises:
            BridgeError: not this, or the tokens of the day are used up.
        """
        if scope not in caller.scopes:
            raise BridgeError(
                Reason.FORBIDDEN, f"the token of {caller.principal} lacks scope {scope}"
            )
        if caller.quota is None:
            return
        if wait_s := self._quota.wait_s(caller.principal, caller.quota, time.time()):
            raise BridgeError(
                Reason.QUOTA,
                f"the {caller.quota} tokens a day of {caller.principal} are used up",
                retry_after_s=wait_s,
            )

    def count(self, caller: HttpCaller, n_tokens: int) -> None:
        """Count tokens of an answer."""
        if caller.quota is not None:
            self._quota.used(caller.principal, n_tokens, time.time())
