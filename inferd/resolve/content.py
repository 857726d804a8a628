"""Validate the content of v2 messages, and list what it requires of a backend."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import UNSET

from inferd.errors import AttachmentsTooLargeError, InvalidRequestError
from inferd.limits.protocol import (
    MAX_ATTACHMENT_BYTES,
    MAX_ATTACHMENTS,
    MAX_BLOCK_DEPTH,
    MAX_BLOCKS,
    MAX_INPUT_TOKENS,
    TOOL_NAME_MAX_CHARS,
)
from inferd.resolve.options import check_message_count
from inferd.routing import (
    GENERATES,
    GENERATES_OR_TRANSCRIBES,
    GENERATES_V2_OR_TRANSCRIBES,
    HANDLES_AUDIO,
    HAS_REASONING,
    KNOWS_TOKENS,
    SERVES_V2,
    TAKES_AUDIO,
    TAKES_IMAGES,
    TAKES_TOOLS,
    TAKES_VIDEO,
    Requirement,
)
from inferd.wire.blocks import (
    Attachment,
    AudioAttachment,
    AudioBlock,
    Block,
    BlocksRequest,
    ImageAttachment,
    ImageBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnknownAttachment,
    UnknownBlock,
    VideoAttachment,
    VideoBlock,
)

_OF_MESSAGES: Final = ("attachments", "tools", "tool_choice", "thinking")
"""Fields that belong to a prompt of messages."""
_KIND_OF: Final = {ImageBlock: "image", AudioBlock: "audio", VideoBlock: "video"}
_TAKES: Final = {
    ImageAttachment: TAKES_IMAGES,
    AudioAttachment: TAKES_AUDIO,
    VideoAttachment: TAKES_VIDEO,
}


def check_content(request: BlocksRequest, n_fds: int = 0) -> None:
    """Check messages, attachments and tools, in the order that the protocol defines.

    Args:
        request: the decoded request.
        n_fds: file descriptors sent with it.

    Raises:
        InvalidRequestError: the content is invalid; the text names the field.
        AttachmentsTooLargeError: the attachments have too many bytes.
    """
    if request.input_tokens is not None:
        _check_input_tokens(request, request.input_tokens)
        return
    check_message_count(len(request.conversation))
    _check_amount(request.attachments)
    kinds = _kinds_by_id(request.attachments)
    _check_sources(request.attachments, n_fds)
    _check_tools([tool.name for tool in request.tools])
    checker = _Checker(kinds)
    for index, message in enumerate(request.conversation):
        where = f"messages[{index}].content"
        if not message.content:
            raise InvalidRequestError(f"{where} must not be empty")
        if fault := checker.find_fault(message.content):
            raise InvalidRequestError(f"{where}{fault}")


def needs_of(
    request: BlocksRequest, *, is_speech: bool = False
) -> tuple[Requirement, ...]:
    """Return what a backend must be able to do.

    Args:
        request: with valid content.
        is_speech: whether a backend that transcribes speech can serve it as well.
    """
    needs = (
        [GENERATES_OR_TRANSCRIBES, GENERATES_V2_OR_TRANSCRIBES]
        if is_speech
        else [GENERATES, SERVES_V2]
    )
    takes = _TAKES | {AudioAttachment: HANDLES_AUDIO} if is_speech else _TAKES
    needs += [
        need
        for kind, need in takes.items()
        if any(isinstance(attachment, kind) for attachment in request.attachments)
    ]
    blocks = [block for message in request.conversation for block in message.content]
    if request.tools or any(
        isinstance(block, ToolUseBlock | ToolResultBlock) for block in blocks
    ):
        needs.append(TAKES_TOOLS)
    if request.thinking:
        needs.append(HAS_REASONING)
    if request.input_tokens is not None or request.token_ids:
        needs.append(KNOWS_TOKENS)
    return tuple(needs)


def _check_input_tokens(request: BlocksRequest, tokens: Sequence[int]) -> None:
    """Check the number of a prompt's tokens, and that there is no other prompt.

    The worker checks that the model has the tokens.
    """
    if request.messages is not UNSET:
        raise InvalidRequestError("input_tokens and messages exclude each other")
    for field in _OF_MESSAGES:
        if getattr(request, field):
            raise InvalidRequestError(
                f"{field} belongs to messages, in whose place input_tokens is"
            )
    if not tokens:
        raise InvalidRequestError("input_tokens must not be empty")
    if len(tokens) > MAX_INPUT_TOKENS:
        raise InvalidRequestError(
            f"input_tokens has {len(tokens)} entries, "
            f"at most {MAX_INPUT_TOKENS} are allowed"
        )


def _check_amount(attachments: Sequence[Attachment]) -> None:
    """Check number and size of attachments before they are decoded."""
    if len(attachments) > MAX_ATTACHMENTS:
        raise InvalidRequestError(
            f"attachments has {len(attachments)} entries, "
            f"at most {MAX_ATTACHMENTS} are allowed"
        )
    n_bytes = sum(
        len(each.bytes or "")
        for each in attachments
        if not isinstance(each, UnknownAttachment)
    )
    if n_bytes > MAX_ATTACHMENT_BYTES:
        raise AttachmentsTooLargeError(
            f"attachments have {n_bytes} bytes, at most {MAX_ATTACHMENT_BYTES} are allowed"
        )


def _kinds_by_id(attachments: Iterable[Attachment]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for each in attachments:
        if isinstance(each, UnknownAttachment):
            raise InvalidRequestError("attachments contain an unknown kind")
        if not each.id:
            raise InvalidRequestError("attachments must have non-empty id")
        if each.id in kinds:
            raise InvalidRequestError(f"duplicate attachment id: {each.id}")
        kinds[each.id] = str(each.__struct_config__.tag)
    return kinds


def _check_sources(attachments: Iterable[Attachment], n_fds: int) -> None:
    """Check that an attachment has either ``bytes`` or the index of a descriptor."""
    for index, each in enumerate(attachments):
        if not isinstance(each, ImageAttachment | AudioAttachment) or each.fd is None:
            continue
        where = f"attachments[{index}]"
        if each.bytes is not None:
            raise InvalidRequestError(f"{where}: bytes and fd exclude each other")
        if each.fd >= n_fds:
            raise InvalidRequestError(
                f"{where}.fd {each.fd} not among the descriptors that came "
                f"with the request, which are {n_fds}"
            )


def _check_tools(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if not name:
            raise InvalidRequestError(f"tools[{index}].name must not be empty")
        if len(name) > TOOL_NAME_MAX_CHARS:
            raise InvalidRequestError(
                f"tools[{index}].name has {len(name)} characters, "
                f"at most {TOOL_NAME_MAX_CHARS} are allowed"
            )
        if name in seen:
            raise InvalidRequestError(f"duplicate tool name: {name}")
        seen.add(name)


class _Checker:
    """Search of blocks for the first fault, with a limit on their number.

    The path of a fault is built while the search returns, so that no strings are made for
    valid blocks.
    """

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        self._n_blocks = 0

    def find_fault(self, blocks: Sequence[Block], depth: int = 1) -> str | None:
        """Return the path and the description of the first fault, if there is one.

        Raises:
            InvalidRequestError: there are too many blocks, or they are nested too deeply.
        """
        self._n_blocks += len(blocks)
        if self._n_blocks > MAX_BLOCKS:
            raise InvalidRequestError(f"messages have more than {MAX_BLOCKS} blocks")
        if depth > MAX_BLOCK_DEPTH:
            raise InvalidRequestError(f"blocks are nested over {MAX_BLOCK_DEPTH} deep")
        for index, block in enumerate(blocks):
            if fault := self._fault_of(block, depth):
                return f"[{index}]{fault}"
        return None

    def _fault_of(self, block: Block, depth: int) -> str | None:
        match block:
            case TextBlock() | ToolUseBlock():
                return None
            case ImageBlock() | AudioBlock() | VideoBlock():
                return _fault_of_reference(block, self._kinds)
            case ToolResultBlock(content=content):
                inner = self.find_fault(content, depth + 1)
                return f".content{inner}" if inner else None
            case UnknownBlock():
                return " uses unknown content-block type"


def _fault_of_reference(
    block: ImageBlock | AudioBlock | VideoBlock, kinds: Mapping[str, str]
) -> str | None:
    wanted = _KIND_OF[type(block)]
    name = block.attachment_id
    if name not in kinds:
        return f' references unknown attachment_id "{name}"'
    if kinds[name] != wanted:
        return f' block expects {wanted} attachment but "{name}" is a different kind'
    return None
