"""What a chat asks the daemon: its messages, their files and the options."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from inferd.chats.file_types import MediumKind, kind_of_medium, media_type_of
from inferd.chats.prompt import messages_of
from inferd.chats.records import (
    KeptAttachment,
    KeptMessage,
    LeftOut,
    WorkParameters,
)
from inferd.cli.chat.state import ChatState, PendingFile, new_id
from inferd.cli.console import CommandError
from inferd.client.attachments import Attachments
from inferd.client.core.conversation import ChatOptions
from inferd.client.core.offers import ServedFacts
from inferd.client.memfd import Memfd
from inferd.limits.bridge import MAX_ASKED_FILE_BYTES
from inferd.wire.blocks import (
    Attachment,
    AudioAttachment,
    Block,
    ImageAttachment,
    Message,
)

MAX_TOKENS: Final = 2048
"""Tokens of an answer at most where its user says nothing: some pages."""
_ABILITIES: Final[Mapping[MediumKind, str]] = {"picture": "vision", "sound": "audio"}


def conversation_of(
    state: ChatState,
    branch: Sequence[KeptMessage],
    work: WorkParameters,
    cut: LeftOut | None,
) -> tuple[list[Message], list[Attachment]]:
    """Return the messages that the model is to read, and their files.

    Files that have changed since they were attached, or that the model does not take, are
    named in words.

    Raises:
        MediaError: a file cannot be decoded.
        MissingExtraError: the package that decodes it is not installed.
    """
    with Attachments() as media:

        def block_of(attachment: KeptAttachment) -> Block | None:
            path = _path_of(state, attachment)
            if path is None:
                return None
            is_picture = kind_of_medium(attachment.media_type) == "picture"
            return media.picture(path) if is_picture else media.sound(path)

        messages = messages_of(branch, work, cut, file_block=block_of)
        return messages, [
            _with_bytes(each, memory)
            for each, memory in zip(media.table, media.memories, strict=True)
        ]


def options_of(state: ChatState) -> ChatOptions:
    """Return the options of an answer."""
    sampling = state.sampling
    options = ChatOptions(max_tokens=sampling.max_new_tokens or MAX_TOKENS)
    if state.model is not None:
        options["model"] = state.model
    if state.thinking is not None:
        options["thinking"] = state.thinking
    if sampling.temperature is not None:
        options["temperature"] = sampling.temperature
    if sampling.top_p is not None:
        options["top_p"] = sampling.top_p
    return options


def takes(facts: ServedFacts | None, kind: MediumKind) -> bool:
    """Tell whether a model takes such files; one that is not known may."""
    return facts is None or _ABILITIES[kind] in facts.can


def attach(path: Path, kind: MediumKind) -> PendingFile:
    """Read a picture or a recording, to send it with the next prompt.

    Raises:
        CommandError: it cannot be read, is too large, or is something else.
    """
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_ASKED_FILE_BYTES else b""
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    if not data:
        raise CommandError(f"{path}: 1 to {MAX_ASKED_FILE_BYTES} bytes are taken")
    media_type = media_type_of(data[:16])
    if media_type is None or kind_of_medium(media_type) != kind:
        word = "picture" if kind == "picture" else "recording"
        raise CommandError(f"{path}: not a {word} of a known type")
    name = "".join(char if char.isprintable() else "_" for char in path.name)
    kept = KeptAttachment(
        id=new_id(),
        name=name[-100:],
        media_type=media_type,
        n_bytes=len(data),
        digest=sha256(data).hexdigest(),
    )
    return PendingFile(kept, path.resolve())


def _path_of(state: ChatState, attachment: KeptAttachment) -> Path | None:
    """Return where a file is that is to be sent; ``None`` if it is not to be."""
    path = state.conversation.paths.get(attachment.id)
    if path is None or not takes(state.facts, kind_of_medium(attachment.media_type)):
        return None
    try:
        is_same = sha256(path.read_bytes()).hexdigest() == attachment.digest
    except OSError:
        is_same = False
    if not is_same:
        state.painter.note(f"({path}: has changed or is gone, and is not sent)")
        return None
    return path


def _with_bytes(attachment: Attachment, memory: Memfd) -> Attachment:
    assert isinstance(attachment, ImageAttachment | AudioAttachment)  # noqa: S101
    text = b64encode(b"".join(memory.blocks())).decode()
    return replace(attachment, fd=None, bytes=text)
