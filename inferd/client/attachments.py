"""Media files for a request: decoded into sealed memfds, and passed as descriptors."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from inferd.client.media.errors import MissingExtraError
from inferd.client.media.sound import SAMPLE_RATE_HZ, decode
from inferd.client.memfd import Memfd
from inferd.wire.blocks import (
    Attachment,
    AudioAttachment,
    AudioBlock,
    ImageAttachment,
    ImageBlock,
)


class Attachments:
    """The attachments of one request.

    ``picture`` and ``sound`` return blocks for its messages; ``table`` goes into its
    ``attachments``, and ``descriptors`` into the call of ``converse``. ``memories`` are what
    these are of, for requests that have the octets themselves.

    Ownership: use it in a ``with`` block, and stay inside until the answer has begun.
    """

    def __init__(self) -> None:
        self.table: list[Attachment] = []
        self.descriptors: list[int] = []
        self.memories: list[Memfd] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def picture(self, path: Path) -> ImageBlock:
        """Attach an image file.

        Raises:
            PictureError: the file cannot be decoded.
            MissingExtraError: Pillow is not installed.
        """
        try:
            from inferd.client.media.pictures import read_picture  # noqa: PLC0415  # slow
        except ImportError as error:
            raise MissingExtraError("PIL") from error
        picture = read_picture(path)
        fd = self._add_memfd(picture.strips())
        name = self._name()
        self.table.append(
            ImageAttachment(id=name, width=picture.width, height=picture.height, fd=fd)
        )
        return ImageBlock(name)

    def sound(self, path: Path) -> AudioBlock:
        """Attach the audio of a file.

        Raises:
            SoundError: the file cannot be decoded, or not to its end.
            MissingExtraError: PyAV is not installed.
        """
        fd = self._add_memfd(decode(path))
        name = self._name()
        self.table.append(AudioAttachment(id=name, sample_rate=SAMPLE_RATE_HZ, fd=fd))
        return AudioBlock(name)

    def _name(self) -> str:
        return f"{len(self.table) + 1}"

    def _add_memfd(self, blocks: Iterable[bytes]) -> int:
        """Write blocks into a sealed memfd; return the index of its descriptor."""
        memory = self._open.enter_context(Memfd())
        for block in blocks:
            memory.write(block)
        memory.seal()
        self.memories.append(memory)
        self.descriptors.append(memory.fd)
        return len(self.descriptors) - 1
