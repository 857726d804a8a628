"""The blocks of a request's messages."""

from msgspec import Struct

from inferd.bridge.translation.objects import Strict


class Cacheable(Strict, frozen=True, kw_only=True):
    """Base of what ``cache_control`` may mark; every prefix is cached in any case."""

    cache_control: object = None


class TextContent(Cacheable, frozen=True, tag_field="type", tag="text"):
    """A text."""

    text: str
    citations: list[object] | None = None
    """Of an earlier answer; they are not repeated to the model."""


class Base64Source(Strict, frozen=True, tag_field="type", tag="base64"):
    """A picture itself."""

    media_type: str
    """Stated; what the file is decides how it is decoded."""
    data: str
    """The file, in base64."""


class UrlSource(Strict, frozen=True, tag_field="type", tag="url"):
    """The address of a picture."""

    url: str


class FileSource(Strict, frozen=True, tag_field="type", tag="file"):
    """A stored picture."""

    file_id: str


class ImageContent(Cacheable, frozen=True, tag_field="type", tag="image"):
    """A picture."""

    source: Base64Source | UrlSource | FileSource


class DocumentContent(Struct, frozen=True, tag_field="type", tag="document"):
    """A file."""


class SearchContent(Struct, frozen=True, tag_field="type", tag="search_result"):
    """A result of a search."""


class ThinkingContent(Cacheable, frozen=True, tag_field="type", tag="thinking"):
    """Reasoning of an earlier answer; it is not repeated to the model."""

    thinking: str
    signature: str = ""


class RedactedContent(
    Cacheable, frozen=True, tag_field="type", tag="redacted_thinking"
):
    """Reasoning that only its own service can read."""

    data: str


class CallContent(Cacheable, frozen=True, tag_field="type", tag="tool_use"):
    """A call of an earlier answer."""

    id: str
    name: str
    input: dict[str, object]
    caller: object = None
    toolset_name: None = None


Plain = TextContent | ImageContent | DocumentContent | SearchContent


class ResultContent(Cacheable, frozen=True, tag_field="type", tag="tool_result"):
    """The result of a call."""

    tool_use_id: str
    content: str | list[Plain] | None = None
    is_error: bool | None = None
    toolset_name: None = None


Content = Plain | ThinkingContent | RedactedContent | CallContent | ResultContent
