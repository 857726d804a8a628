"""What the media of all requests may take: bytes in our memory, and descriptors."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from inferd.admission.budget import Amount, Budget
from inferd.config import LimitSettings
from inferd.errors import InvalidRequestError, QueueFullError
from inferd.server.media import (
    MEDIA_SLICE_BYTES,
    Attached,
    Medium,
    decoded_bytes,
)
from inferd.server.sound import Sound
from inferd.wire.blocks import AudioAttachment


class _Amounts(NamedTuple):
    n_bytes: Amount
    files: Amount


class MediaRoom:
    """Shares out what there is, as the gate shares out what may wait.

    A user may have all of it while no other has media here, else an equal share; the
    first request of a user who has none fits if all first ones do. What a client passes
    is its own memory and takes a descriptor alone.

    Args:
        limits: as configured; may change at any time.
        n_files: descriptors for media; may change at any time.
        depth: tells how many requests wait, for those that are refused.
    """

    def __init__(
        self, limits: LimitSettings, n_files: int, depth: Callable[[], int]
    ) -> None:
        self.limits = limits
        self._bytes = Budget(limits.max_media_bytes)
        self._files = Budget(n_files)
        self._depth = depth
        self._users: Counter[int] = Counter()

    @property
    def held_bytes(self) -> int:
        """Bytes that are held, or kept free for sound that is to come."""
        return self._bytes.spent

    def resize(self, limits: LimitSettings) -> None:
        """Change the bounds; what is held stays."""
        self.limits = limits
        self._bytes.bound = limits.max_media_bytes

    def bound_files(self, n_files: int) -> None:
        """Change how many descriptors there are for media; what is open stays."""
        self._files.bound = n_files

    @contextmanager
    def open(self, uid: int) -> Iterator["Holdings"]:
        """Hold the media of one request; on leaving, they are let go."""
        holdings = Holdings(self, uid)
        try:
            yield holdings
        finally:
            holdings.close()

    def spend(self, uid: int, n_bytes: int, n_files: int) -> _Amounts:
        """Count what a request wants to hold.

        Raises:
            QueueFullError: others have too much of it.
        """
        is_first = not self._users[uid]
        amounts = _Amounts(
            Amount(uid, n_bytes, is_first), Amount(uid, n_files, is_first)
        )
        n_users = len({*self._users, uid})
        if not (
            n_files <= self._files.bound
            and self._bytes.has_room(amounts.n_bytes, n_users=n_users)
            and self._files.has_room(amounts.files, n_users=n_users)
        ):
            raise QueueFullError(depth=self._depth())
        self._bytes.spend(amounts.n_bytes)
        self._files.spend(amounts.files)
        self._users[uid] += 1
        return amounts

    def give_back(self, amounts: _Amounts) -> None:
        """Count it no more."""
        self._bytes.give_back(amounts.n_bytes)
        self._files.give_back(amounts.files)
        uid = amounts.files.uid
        self._users[uid] -= 1
        if not self._users[uid]:
            del self._users[uid]


class Holdings:
    """The media of one request. Use ``MediaRoom.open``."""

    def __init__(self, room: MediaRoom, uid: int) -> None:
        self._room = room
        self._uid = uid
        self._amounts: _Amounts | None = None
        self.media: dict[str, Medium] = {}
        """By the ids of their attachments, in the order of these."""

    async def take(self, attachments: Sequence[Attached], fds: Sequence[int]) -> None:
        """Hold all attachments of a request; once.

        Args:
            attachments: of different ids.
            fds: that came with the line, among them all that attachments name; the
                caller's.

        Raises:
            InvalidRequestError: one of them cannot be used, or the client passed too much.
            QueueFullError: others hold too much.
            BackendUnavailableError: there is no descriptor or no memory for one.
        """
        if not attachments:
            return
        limits = self._room.limits
        ahead_bytes = limits.max_audio_ahead_bytes + MEDIA_SLICE_BYTES
        n_bytes = sum(decoded_bytes(each.bytes or "") for each in attachments)
        n_bytes += ahead_bytes * sum(map(_is_open, attachments))
        self._amounts = self._room.spend(self._uid, n_bytes, len(attachments))
        n_passed = 0
        for each in attachments:
            fd = None if each.fd is None else fds[each.fd]
            medium = self.media[each.id] = await self._held(each, fd)
            n_passed += medium.n_bytes * (fd is not None)
            if n_passed > limits.max_passed_bytes:
                raise InvalidRequestError(
                    f"attachments passed by fd have {n_passed} bytes, "
                    f"at most {limits.max_passed_bytes} are allowed"
                )

    def close(self) -> None:
        """Let go of all."""
        for medium in self.media.values():
            medium.close()
        if self._amounts is not None:
            self._room.give_back(self._amounts)
            self._amounts = None

    async def _held(self, attachment: Attached, fd: int | None) -> Medium:
        if isinstance(attachment, AudioAttachment) and attachment.open:
            return await self._begun(attachment, fd)
        if fd is not None:
            return Medium.adopted(attachment, fd)
        return await Medium.decoded(attachment)

    async def _begun(self, attachment: AudioAttachment, fd: int | None) -> Sound:
        limits = self._room.limits
        sound = Sound.growing(
            attachment,
            most_bytes=limits.max_appended_bytes,
            ahead_bytes=limits.max_audio_ahead_bytes,
        )
        try:
            if fd is not None:
                await sound.append_file(fd)
            else:
                await sound.append_text(attachment.bytes or "")
        except BaseException:
            sound.close()
            raise
        return sound


def _is_open(attachment: Attached) -> bool:
    return isinstance(attachment, AudioAttachment) and attachment.open
