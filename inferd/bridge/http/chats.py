"""The routes of chats: requests in, documents and events out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import trio

from inferd.bridge.access_log import BridgeLog
from inferd.bridge.chats import requests as asked
from inferd.bridge.chats.attachments import file_headers
from inferd.bridge.chats.documents import (
    BothDocument,
    DebugToken,
    DebugTokens,
    model_configs,
)
from inferd.bridge.chats.events import (
    read_so_far,
)
from inferd.bridge.chats.failures import telling_chat_failures
from inferd.bridge.chats.handlers import NewAnswer
from inferd.bridge.chats.hosted import HostedRequest
from inferd.bridge.chats.parts import AnswerParts
from inferd.bridge.chats.tools.servers import tool_server_infos
from inferd.bridge.http.endpoint import Handler
from inferd.bridge.http.exchange import HttpExchange
from inferd.bridge.http.following import EVENTS, ChatService, Following, latest
from inferd.bridge.http.guard import header_of
from inferd.bridge.http.questions import via_of
from inferd.bridge.identity.caller import HttpCaller
from inferd.bridge.identity.share import SharedLimit
from inferd.bridge.identity.token import OWN_USER
from inferd.bridge.openapi.route import HttpRoute
from inferd.bridge.openapi.routes import hosted_routes
from inferd.bridge.translation.api import Api, HostedOperation
from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.query import read_query
from inferd.chats.documents import message_document
from inferd.chats.failures import ChatError
from inferd.chats.storage.chats import delete_old
from inferd.chats.store import now_us
from inferd.limits.bridge import (
    ERASE_PAUSE_S,
    HEARTBEAT_S,
    MAX_FOLLOWERS,
    SWEEP_S,
)

_US: Final = 1_000_000
_DAY_S: Final = 86_400
_FOLLOWERS: Final = 1024
"""Connections of all users that follow answers: more than ``max_connections`` by default."""


@dataclass(frozen=True)
class ChatSetUp:
    """What the routes of chats are made of."""

    parts: AnswerParts | None = None
    """``None`` where no chats are kept."""
    reason: str = "chats are switched off here: chats.enabled is false"
    """Why not, then."""
    is_development: bool = False
    """Whether anybody may sign in by a name."""


class ChatRoutes:
    """Answers the requests about chats.

    Args:
        set_up: what they are made of.
    """

    def __init__(self, set_up: ChatSetUp) -> None:
        self._set_up = set_up
        self._service = ChatService(set_up.parts) if set_up.parts else None
        self._nursery: trio.Nursery | None = None
        self._followers = SharedLimit(_FOLLOWERS)

    @property
    def n_running(self) -> int:
        """Answers that are generated now."""
        return self._service.answers.n_running if self._service else 0

    # --- while the bridge runs --------------------------------------------------------

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Generate answers until cancelled; then store how far they are."""
        if self._service is None:
            task_status.started()
            return
        parts = self._service.parts
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._beat, parts)
                nursery.start_soon(self._erase, parts)
                if parts.settings.retention_days:
                    nursery.start_soon(self._sweep, parts)
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._service.answers.end()
        finally:
            with trio.CancelScope(shield=True):
                try:
                    await parts.store.close()
                except ChatError as error:
                    _tell(parts.log, error)

    async def idle(self) -> None:
        """Wait until no answer is generated."""
        if self._service is not None:
            await self._service.answers.idle()

    async def _beat(self, parts: AnswerParts) -> None:
        """Tell other bridges that this one runs, and abort what dead ones left."""
        store = parts.store
        if not store.exists():
            await store.opened.wait()  # the first request makes it
        while True:
            try:
                await store.beat()
            except ChatError as error:
                _tell(parts.log, error)
            await trio.sleep(HEARTBEAT_S)

    async def _erase(self, parts: AnswerParts) -> None:
        """Take what was deleted off the disk, as far as the request has not."""
        await parts.store.opened.wait()
        while True:
            has_more = False
            try:
                has_more = await parts.store.erase()
            except ChatError as error:
                _tell(parts.log, error)
            await trio.sleep(ERASE_PAUSE_S if has_more else HEARTBEAT_S)

    async def _sweep(self, parts: AnswerParts) -> None:
        """Delete chats that are older than they are kept."""
        kept_us = parts.settings.retention_days * _DAY_S * _US
        while True:
            try:
                while await parts.store.run(
                    lambda connection: delete_old(connection, now_us() - kept_us)
                ):
                    await parts.store.settle()
            except ChatError as error:
                _tell(parts.log, error)
            await trio.sleep(SWEEP_S)

    def handlers(self, api: Api) -> Iterator[tuple[HttpRoute, Handler]]:
        """Give the routes of an API that are answered here."""
        for route, operation in hosted_routes(api):
            yield route, partial(self.answer, operation)

    # --- requests ---------------------------------------------------------------------

    async def answer(
        self,
        operation: HostedOperation,
        exchange: HttpExchange,
        named: Mapping[str, str],
    ) -> None:
        """Answer a request.

        Raises:
            BridgeError: it is refused, or cannot be answered.
        """
        if operation.action == "sign_in":
            await self._sign_in(exchange)
            return
        caller = exchange.caller
        assert caller is not None  # noqa: S101  # the route has a scope
        if self._service is None:
            raise BridgeError(Reason.NOT_CONFIGURED, self._set_up.reason)
        body = await exchange.read_body() if operation.table is not None else b""
        owner = named.get("owner", caller.principal)
        request = HostedRequest(operation, owner, named, exchange.query, body)
        if owner != caller.principal:
            self._service.parts.log.write(
                "info", "chats.read", principal=caller.principal, owner=owner[:64]
            )
        with telling_chat_failures():
            await self._serve(self._service, request, exchange, caller)

    async def _serve(
        self,
        service: ChatService,
        request: HostedRequest,
        exchange: HttpExchange,
        caller: HttpCaller,
    ) -> None:
        """Answer a request by the method of its name, here or of the handlers."""
        action = request.operation.action
        if action in {"follow", "export_chat", "read_attachment"}:
            await getattr(self, f"_{action}")(service, request, exchange)
            return
        own = getattr(self, f"_{action}", None)
        if action in {"create_answer", "create_both"}:
            new = await getattr(service.handlers, action)(request)
            found = self._begin(service, caller, new, via_of(exchange))
        elif own is not None:
            found = await own(service, request)
        else:
            found = await getattr(service.handlers, action)(request)
        await exchange.respond(200, msgspec.json.encode(found))

    async def _list_models(self, service: ChatService, _: HostedRequest) -> object:
        return model_configs(await service.parts.daemon.models())

    async def _list_tool_servers(
        self, service: ChatService, _: HostedRequest
    ) -> object:
        return await tool_server_infos(service.parts.tools)

    async def _decide_call(
        self, service: ChatService, request: HostedRequest
    ) -> object:
        message = latest(service, await service.handlers.read_message(request))
        call_id = request.named["call_id"]
        if call_id not in {call.id for call in message.details.calls}:
            raise BridgeError(
                Reason.MESSAGE_NOT_FOUND, "there is no such call in this message"
            )
        await service.handlers.decide_call(request)
        return message_document(latest(service, message))

    async def _delete_chat(
        self, service: ChatService, request: HostedRequest
    ) -> object:
        await service.handlers.delete_chat(request)
        service.answers.stop_chat(request.chat_id)
        return {}

    async def _read_message(
        self, service: ChatService, request: HostedRequest
    ) -> object:
        return message_document(
            latest(service, await service.handlers.read_message(request))
        )

    async def _export_chat(
        self, service: ChatService, request: HostedRequest, exchange: HttpExchange
    ) -> None:
        """Send a chat as a file."""
        if request.parameters(asked.ExportQuery).format == "markdown":
            text = await service.handlers.export_markdown(request)
            kind = "text/markdown; charset=utf-8"
            await exchange.respond(200, text.encode(), kind, _AS_FILE)
            return
        found = await service.handlers.export_json(request)
        await exchange.respond(200, msgspec.json.encode(found))

    async def _read_attachment(
        self, service: ChatService, request: HostedRequest, exchange: HttpExchange
    ) -> None:
        """Send a picture or a recording, by a type that no browser runs."""
        kept, data = await service.handlers.read_attachment(request)
        await exchange.respond(200, data, kept.media_type, file_headers(kept))

    def _begin(
        self,
        service: ChatService,
        caller: HttpCaller,
        new: NewAnswer,
        via: Sequence[str],
    ) -> object:
        """Generate a new answer; return what its client is told."""
        assert self._nursery is not None  # noqa: S101  # ``run`` opens it first
        service.answers.stop(new.cancelled)
        if new.is_new:
            service.answers.begin(self._nursery, caller, new.message, via)
        answer = message_document(new.message)
        if new.prompt is None:
            return answer
        return BothDocument(
            message_id=answer.id,
            prompter_message=message_document(new.prompt),
            assistant_message=answer,
        )

    async def _stop(self, service: ChatService, request: HostedRequest) -> object:
        """Mark an answer as cancelled, end it, and return it as it is then."""
        message = await service.handlers.stop(request)
        running = service.answers.find(message.id)
        if running is None:  # it may have stored the rest of its text since
            return message_document(await service.handlers.read_message(request))
        service.answers.stop([message.id])
        while running.message.is_unfinished:
            await running.wait()
        return message_document(running.message)

    # --- events -----------------------------------------------------------------------

    async def _follow(
        self, service: ChatService, request: HostedRequest, exchange: HttpExchange
    ) -> None:
        """Send the events of an answer that the client lacks, until its end.

        Raises:
            BridgeError: it is no answer, or the caller follows too many.
        """
        event_id = header_of(exchange.headers, "last-event-id")
        so_far = read_so_far(event_id)
        message = await service.handlers.read_message(request)
        if message.role != "assistant":
            raise invalid("message_id", "only answers have events")
        message = latest(service, message)
        if so_far.is_over or not (message.is_unfinished or event_id):
            await exchange.respond(204, b"")
            return
        if self._followers.total and self._n_following(exchange) >= MAX_FOLLOWERS:
            raise BridgeError(
                Reason.CHAT_LIMIT,
                f"{MAX_FOLLOWERS} connections of yours follow answers already",
            )
        exchange.hold(self._followers)
        async with exchange.ended_by_hang_up():
            await exchange.begin_stream(EVENTS.content_type)
            await Following(service, request, exchange, so_far).run(message)
        await exchange.end_stream()

    def _n_following(self, exchange: HttpExchange) -> int:
        assert exchange.caller is not None  # noqa: S101  # the route has a scope
        name = exchange.caller.principal
        return self._followers.share - self._followers.left_for(name)

    # --- signing in -------------------------------------------------------------------

    async def _sign_in(self, exchange: HttpExchange) -> None:
        """Give the bridge's own user a token for a name.

        Raises:
            BridgeError: the bridge has no ``--development``, or somebody else asks.
        """
        caller, parts = exchange.caller, self._set_up.parts
        if not self._set_up.is_development or parts is None:
            raise BridgeError(Reason.ROUTE_NOT_FOUND, "there is no such route")
        if caller is None or caller.principal != OWN_USER:
            raise BridgeError(
                Reason.FORBIDDEN, "the bridge's own user alone signs in by a name"
            )
        query = asked.DEBUG_QUERY
        code = read_query(exchange.query, query.table, asked.DebugQuery).code
        token = DebugToken(access_token=parts.callers.sign_in(code))
        body = msgspec.json.encode(DebugTokens(access_token=token))
        await exchange.respond(200, body)


_AS_FILE: Final = {"content-disposition": 'attachment; filename="chat.md"'}


def _tell(log: BridgeLog, error: ChatError) -> None:
    log.write("error", "chats.unavailable", reason=str(error))
