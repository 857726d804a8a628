"""Fetching of a file: its bytes, from where an earlier download stopped."""

import re
from collections.abc import Callable
from typing import Final

import httpx2

from inferd.downloader.session import TaskError, Web, check_status
from inferd.limits.models import PULL_BLOCK_BYTES
from inferd.models.pull.messages import DATA, HEADER, End, Fetch, Head, framed

Send = Callable[[bytes], object]

_PARTIAL_CONTENT: Final = 206
_NOT_SATISFIABLE: Final = 416
_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_ETAG: Final = re.compile(r'"[!#-~]*"')
_PAGES: Final = ("text/html", "application/xhtml+xml")


def fetch(web: Web, task: Fetch, send: Send) -> None:
    """Send ``Head``, the bytes of the file and ``End``.

    Raises:
        TaskError: the file, or the rest of it, cannot be had.
    """
    with web.bound_to(task.url, is_pinned=task.is_pinned):
        headers = {"Accept-Encoding": "identity"}
        if task.token:
            headers["Authorization"] = f"Bearer {task.token}"
        if task.offset:
            headers["Range"] = f"bytes={task.offset}-"
            if task.etag:
                headers["If-Range"] = task.etag
        with web.client.stream("GET", task.url, headers=headers) as response:
            if task.offset and response.status_code == _NOT_SATISFIABLE:
                response.close()
                again = Fetch(url=task.url, is_pinned=task.is_pinned, token=task.token)
                fetch(web, again, send)
                return
            _send_response(response, task, send)


def _send_response(response: httpx2.Response, task: Fetch, send: Send) -> None:
    check_status(response)
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind in _PAGES:
        raise TaskError("web_page", kind)
    if (coding := response.headers.get("Content-Encoding", "identity")) != "identity":
        raise TaskError(
            "invalid", f"it is encoded as {coding}, which was not asked for"
        )
    send(framed(head_of(response, task)))
    for data in response.iter_raw():
        for begin in range(0, len(data), PULL_BLOCK_BYTES):
            block = data[begin : begin + PULL_BLOCK_BYTES]
            send(HEADER.pack(DATA, len(block)) + block)
    send(framed(End()))


def head_of(response: httpx2.Response, task: Fetch) -> Head:
    """Read which part of the file a response has, and how long the file is.

    Raises:
        TaskError: it has another part than was asked for.
    """
    etag = response.headers.get("ETag", "")
    etag = etag if _ETAG.fullmatch(etag) else ""
    if response.status_code != _PARTIAL_CONTENT:
        length = response.headers.get("Content-Length", "")
        n_bytes = int(length) if re.fullmatch(r"\d{1,18}", length) else None
        return Head(offset=0, n_bytes=n_bytes, etag=etag)
    text = response.headers.get("Content-Range", "")
    match = _RANGE.fullmatch(text)
    if match is None or int(match[1]) != task.offset:
        raise TaskError("invalid", f"asked for bytes from {task.offset}, got {text!r}")
    total = None if match[3] == "*" else int(match[3])
    return Head(offset=task.offset, n_bytes=total, etag=etag)
