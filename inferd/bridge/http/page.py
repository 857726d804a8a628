"""The routes of the page, and ``/`` for those who only look whether anybody is there."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from inferd.bridge.http.endpoint import Handler
from inferd.bridge.http.exchange import HttpExchange
from inferd.bridge.http.guard import header_values
from inferd.bridge.openapi.route import HttpRoute
from inferd.bridge.openapi.routes import own_route
from inferd.bridge.page.files import HEADERS, INDEX, PageFile, read_files
from inferd.bridge.translation.api import Api
from inferd.bridge.translation.failures import BridgeError, Reason

TEXT: Final = "text/plain"
HTML: Final = "text/html"


class PageRoutes:
    """The routes that send the page's files; they are read when one is first asked for."""

    def __init__(self, apis: Sequence[Api]) -> None:
        self._apis = apis

    def __iter__(self) -> Iterator[tuple[HttpRoute, Handler]]:
        """Give each route with its handler."""
        yield (
            own_route(
                self._apis,
                "/",
                "Send the page to browsers, and to others that the bridge runs",
                answers={TEXT: str, HTML: str},
            ),
            self._send_index,
        )
        yield (
            own_route(
                self._apis,
                "/page/{file:path}",
                "Send a file of the page",
                answers={"*/*": bytes},
                reasons=(Reason.ROUTE_NOT_FOUND,),
            ),
            self._send_file,
        )

    @cached_property
    def _files(self) -> Mapping[str, PageFile]:
        return read_files()

    async def _send_index(self, exchange: HttpExchange, _: Mapping[str, str]) -> None:
        """Send the page; Ollama's command, which looks whether anybody is there, gets a text."""
        exchange.extra_headers["vary"] = "accept"
        if HTML in ",".join(header_values(exchange.headers, "accept")):
            await _send(exchange, self._files[INDEX])
            return
        await exchange.respond(200, b"inferd is running", f"{TEXT}; charset=utf-8")

    async def _send_file(self, exchange: HttpExchange, path: Mapping[str, str]) -> None:
        file = self._files.get(path["file"])
        if file is None:
            raise BridgeError(Reason.ROUTE_NOT_FOUND, "the page has no such file")
        await _send(exchange, file)


async def _send(exchange: HttpExchange, file: PageFile) -> None:
    headers = {**HEADERS, "etag": file.tag}
    if file.tag in ",".join(header_values(exchange.headers, "if-none-match")):
        await exchange.respond(304, b"", file.media_type, headers)
        return
    data = file.data
    if "gzip" in ",".join(header_values(exchange.headers, "accept-encoding")):
        data, headers["content-encoding"] = file.compressed, "gzip"
    await exchange.respond(200, data, file.media_type, headers)
