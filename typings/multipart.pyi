# What inferd uses of the module `multipart.py`, of the package of that name. Beside it
# `python-multipart`, which other packages need, has a package `multipart` that loads the
# module at run time: a checker of types would read that instead.
from collections.abc import Iterator

class MultipartError(ValueError): ...

class MultipartSegment:
    name: str
    filename: str | None
    content_type: str | None
    charset: str | None
    complete: bool
    size: int
    def header(self, name: str, default: str) -> str: ...

class PushMultipartParser:
    def __init__(
        self,
        boundary: str | bytes,
        content_length: int = ...,
        max_header_size: int = ...,
        max_header_count: int = ...,
        max_segment_size: float = ...,
        max_segment_count: float = ...,
        header_charset: str = ...,
        strict: bool = ...,
    ) -> None: ...
    def parse(self, chunk: bytes) -> Iterator[MultipartSegment | bytearray | None]: ...
    def close(self, check_complete: bool = ...) -> None: ...

def parse_options_header(header: str) -> tuple[str, dict[str, str]]: ...
