"""The body of a form, parsed as it comes: RFC 7578, within bounds."""

from io import BytesIO
from typing import Final

from multipart import (
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
    parse_options_header,
)

from inferd.bridge.recordings.form import FILE, Form
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.limits.bridge import (
    BOUNDARY_CHARS,
    FORM_FIELD_BYTES,
    MAX_FORM_PARTS,
    MAX_STATED_CHARS,
    PART_HEADER_BYTES,
    PART_HEADERS,
)

FORM_TYPE: Final = "multipart/form-data"
_PLAIN_ENCODINGS: Final = ("binary", "8bit", "7bit")
_CHARSETS: Final = (None, "utf-8", "utf8", "us-ascii")


class FormParser:
    """Parses a form with one file, the field ``file``, and texts in UTF-8.

    Args:
        content_type: of the request.

    Raises:
        BridgeError: it is no form, or has no boundary.

    Bounds:
        Parts, their headers and texts: those of ``limits.bridge``. The caller bounds the
        body, and with it the file.
    """

    def __init__(self, content_type: str) -> None:
        kind, options = parse_options_header(content_type)
        if kind != FORM_TYPE:
            raise BridgeError(
                Reason.INVALID_REQUEST, f"content-type: must be {FORM_TYPE}"
            )
        boundary = options.get("boundary", "")
        if not (0 < len(boundary) <= BOUNDARY_CHARS and boundary.isascii()):
            raise BridgeError(
                Reason.INVALID_REQUEST,
                "content-type: must have a boundary of 1 to "
                f"{BOUNDARY_CHARS} ASCII characters",
            )
        try:
            self._parser = PushMultipartParser(
                boundary,
                max_header_size=PART_HEADER_BYTES,
                max_header_count=PART_HEADERS,
                max_segment_count=MAX_FORM_PARTS,
            )
        except MultipartError as error:
            raise _malformed(error) from error
        self._fields: list[tuple[str, str]] = []
        self._file: BytesIO | None = None
        self._name = ""
        """Of the part that is being received."""
        self._text = bytearray()

    def feed(self, data: bytes) -> None:
        """Take a part of the body.

        Raises:
            BridgeError: it is malformed, or over a bound.
        """
        if not data:
            return
        try:
            for event in self._parser.parse(data):
                self._take(event)
        except MultipartError as error:
            raise _malformed(error) from error

    def end(self) -> Form:
        """Return the form.

        Raises:
            BridgeError: it is not complete, or has no file.
        """
        try:
            self._parser.close()
        except MultipartError as error:
            raise _malformed(error) from error
        file = self._file.getvalue() if self._file else b""  # without a copy
        if not file:
            raise BridgeError(
                Reason.INVALID_REQUEST, f"{FILE}: is missing or empty", param=FILE
            )
        return Form(self._fields, file)

    def _take(self, event: MultipartSegment | bytes | bytearray | None) -> None:
        match event:
            case MultipartSegment():
                self._begin(event)
            case None:
                self._end_part()
            case _ if self._name == FILE and self._file is not None:
                self._file.write(event)
            case _:
                self._add_text(event)

    def _begin(self, part: MultipartSegment) -> None:
        """Begin a part.

        Raises:
            BridgeError: it is a second file, or encoded in a way of e-mail.
        """
        name = self._name = part.name or ""
        encoding = part.header("Content-Transfer-Encoding", "binary").lower()
        if encoding not in _PLAIN_ENCODINGS:
            raise _fault(name, "its content-transfer-encoding is not supported")
        if (part.content_type or "").startswith("multipart/"):
            raise _fault(name, "forms within forms are not supported")
        if name != FILE:
            if (part.charset or "utf-8").lower() not in _CHARSETS:
                raise _fault(name, "must be UTF-8")
            return
        if self._file is not None:
            raise _fault(name, "is there twice")
        self._file = BytesIO()

    def _add_text(self, data: bytes | bytearray) -> None:
        self._text += data
        if len(self._text) > FORM_FIELD_BYTES:
            raise _fault(self._name, f"has over {FORM_FIELD_BYTES} bytes")

    def _end_part(self) -> None:
        if self._name == FILE:
            return
        try:
            text = self._text.decode()
        except UnicodeDecodeError as error:
            raise _fault(self._name, "must be UTF-8") from error
        self._text.clear()
        self._fields.append((self._name, text))


def _fault(name: str, text: str) -> BridgeError:
    stated = name[:MAX_STATED_CHARS]
    return BridgeError(Reason.INVALID_REQUEST, f"{stated}: {text}", param=stated)


def _malformed(error: MultipartError) -> BridgeError:
    """Return the failure of a body that the parser refuses; its texts quote nothing."""
    return BridgeError(Reason.INVALID_REQUEST, f"the form: {error.args[0]}")
