"""The files of the page, read once, and the headers that each is sent with."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
"""What is sent; other files, as licences, are not."""

_POLICY: Final = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' blob:",
    "media-src": "blob:",
    "manifest-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
HEADERS: Final = {
    "content-security-policy": "; ".join(
        f"{name} {at}" for name, at in _POLICY.items()
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-dns-prefetch-control": "off",
    "x-frame-options": "DENY",
    "cache-control": "no-cache",
    "vary": "accept, accept-encoding",
}
"""Of every file. No text becomes markup or script, whatever a model writes: F-59. No other
page frames this one or learns of it: F-60."""


@dataclass(frozen=True)
class PageFile:
    """A file of the page."""

    data: bytes
    media_type: str

    @cached_property
    def tag(self) -> str:
        """Its entity tag, which is weak: both encodings have it."""
        return f'W/"{hashlib.sha256(self.data).hexdigest()[:32]}"'

    @cached_property
    def compressed(self) -> bytes:
        """Its data for a slow network."""
        return gzip.compress(self.data, mtime=0)


def read_files(directory: Path = STATIC) -> Mapping[str, PageFile]:
    """Return all files by their paths below a directory.

    Raises:
        OSError: one cannot be read.
    """
    return {
        path.relative_to(directory).as_posix(): PageFile(
            path.read_bytes(), MEDIA_TYPES[path.suffix]
        )
        for path in sorted(directory.rglob("*"))
        if path.suffix in MEDIA_TYPES and path.is_file()
    }
