"""Files for a request: decoded into sealed memory, and passed as descriptors."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from inferd.client.media import MissingExtraError
from inferd.client.memory import Memory
from inferd.client.sound import SAMPLE_RATE_HZ, decode
from inferd.wire.blocks import (
    Attachment,
    AudioAttachment,
    AudioBlock,
    ImageAttachment,
    ImageBlock,
)


class Attachments:
    """What a request refers to.

    ``picture`` and ``sound`` give blocks for its messages, ``table`` is for its
    ``attachments``, and ``descriptors`` go with it to ``converse``.

    Ownership: a ``with`` block; keep it until the answer began.
    """

    def __init__(self) -> None:
        self.table: list[Attachment] = []
        self.descriptors: list[int] = []
        self._memories = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._memories.close()

    def picture(self, path: Path) -> ImageBlock:
        """Attach the picture of a file.

        Raises:
            PictureError: it is none that can be used.
            MissingExtraError: Pillow is not installed.
        """
        try:
            from inferd.client.pictures import read_picture  # noqa: PLC0415  # slow
        except ImportError as error:
            raise MissingExtraError("PIL") from error
        picture = read_picture(path)
        fd = self._keep(picture.strips())
        name = self._name()
        self.table.append(
            ImageAttachment(id=name, width=picture.width, height=picture.height, fd=fd)
        )
        return ImageBlock(name)

    def sound(self, path: Path) -> AudioBlock:
        """Attach the sound of a file.

        Raises:
            SoundError: it is none that can be used, or breaks off.
            MissingExtraError: PyAV is not installed.
        """
        fd = self._keep(decode(path))
        name = self._name()
        self.table.append(AudioAttachment(id=name, sample_rate=SAMPLE_RATE_HZ, fd=fd))
        return AudioBlock(name)

    def _name(self) -> str:
        return f"{len(self.table) + 1}"

    def _keep(self, blocks: Iterable[bytes]) -> int:
        """Seal blocks in memory; give the place of its descriptor."""
        memory = self._memories.enter_context(Memory())
        for block in blocks:
            memory.write(block)
        memory.seal()
        self.descriptors.append(memory.fd)
        return len(self.descriptors) - 1
