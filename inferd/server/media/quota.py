"""The quota for the media of all requests: bytes of the daemon's memory and descriptors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from inferd.admission.quota import Charge, Quota
from inferd.admission.shares import CallerCounts, Shares
from inferd.backend.caller import Caller
from inferd.config.settings import Config, LimitSettings
from inferd.errors import InvalidRequestError, QueueFullError
from inferd.limits.admission import GATEWAY_WEIGHT
from inferd.limits.server import MAX_MEDIA_FILES
from inferd.server.media.attachments import (
    MEDIA_SLICE_BYTES,
    AttachmentFile,
    MediaAttachment,
    decoded_size,
)
from inferd.server.media.growing_audio import GrowingAudioFile
from inferd.wire.blocks import AudioAttachment


class _Charges(NamedTuple):
    n_bytes: Charge
    files: Charge


class MediaQuota:
    """Quota of media bytes and files, shared between users like places in the queue.

    A user may use all of it while no other user has media, else an equal share; the
    first request of a user without media is admitted if all first requests fit. A file
    that a client passed is the client's own memory and counts as a descriptor only.

    Args:
        limits: as configured; may change at any time.
        n_files: descriptors for media; may change at any time.
        depth: counts the waiting requests, for the error of refused requests.
        gateway_weight: users that a gateway counts as at most; may change at any time.
    """

    def __init__(
        self,
        limits: LimitSettings,
        n_files: int,
        depth: Callable[[], int],
        gateway_weight: int = GATEWAY_WEIGHT,
    ) -> None:
        self.limits = limits
        self._shares = Shares(max_weight=gateway_weight)  # of those who have media
        self._bytes = Quota(limits.max_media_bytes)
        self._files = Quota(n_files)
        self._depth = depth
        self._requests = CallerCounts()

    @property
    def gateway_weight(self) -> int:
        """The users that a gateway counts as at most."""
        return self._shares.max_weight

    @gateway_weight.setter
    def gateway_weight(self, gateway_weight: int) -> None:
        self._shares.max_weight = gateway_weight

    @property
    def held_bytes(self) -> int:
        """Bytes that are used, or reserved for audio that may be appended."""
        return self._bytes.spent

    def reconfigure(self, limits: LimitSettings) -> None:
        """Change the limits; media that are held remain."""
        self.limits = limits
        self._bytes.limit = limits.max_media_bytes

    def limit_files(self, n_files: int) -> None:
        """Change the number of descriptors for media; open files remain."""
        self._files.limit = n_files

    @contextmanager
    def open(self, caller: Caller) -> Iterator["RequestMedia"]:
        """Hold the media of one request while inside; they are closed on leaving."""
        request_media = RequestMedia(self, caller)
        try:
            yield request_media
        finally:
            request_media.close()

    def spend(self, caller: Caller, n_bytes: int, n_files: int) -> _Charges:
        """Acquire quota for a request.

        Raises:
            QueueFullError: the caller's share, or the quota, is exhausted.
        """
        first = self._requests.next_first(caller)
        charges = _Charges(
            Charge(caller, n_bytes, first), Charge(caller, n_files, first)
        )
        self._shares.add(caller)
        if not (
            n_files <= self._files.limit
            and self._bytes.fits(charges.n_bytes, self._shares)
            and self._files.fits(charges.files, self._shares)
        ):
            self._shares.remove(caller)
            raise QueueFullError(depth=self._depth())
        self._bytes.spend(charges.n_bytes)
        self._files.spend(charges.files)
        self._requests.add(caller, 1)
        return charges

    def release(self, charges: _Charges) -> None:
        """Release the quota of a request."""
        self._bytes.release(charges.n_bytes)
        self._files.release(charges.files)
        self._shares.remove(charges.files.caller)
        self._requests.add(charges.files.caller, -1)


def make_media_quota(config: Config, depth: Callable[[], int]) -> MediaQuota:
    """Make the quota that the configuration describes; ``depth`` counts waiting requests."""
    weight = config.admission.gateway_weight
    return MediaQuota(config.limits, MAX_MEDIA_FILES, depth, weight)


class RequestMedia:
    """The media files of one request. Use ``MediaQuota.open``."""

    def __init__(self, quota: MediaQuota, caller: Caller) -> None:
        self._quota = quota
        self._caller = caller
        self._charges: _Charges | None = None
        self.media: dict[str, AttachmentFile] = {}
        """Files by the ids of their attachments, in the order of the request."""

    async def load(
        self, attachments: Sequence[MediaAttachment], fds: Sequence[int]
    ) -> None:
        """Load all attachments of a request; called once.

        Args:
            attachments: with different ids.
            fds: descriptors that came with the line, to which attachments refer by
                index; the caller's.

        Raises:
            InvalidRequestError: an attachment is invalid, or the client passed too much.
            QueueFullError: the quota is exhausted.
            BackendUnavailableError: there is no descriptor or no memory for one.
        """
        if not attachments:
            return
        limits = self._quota.limits
        ahead_bytes = limits.max_audio_ahead_bytes + MEDIA_SLICE_BYTES
        n_bytes = sum(decoded_size(each.bytes or "") for each in attachments)
        n_bytes += ahead_bytes * sum(map(_is_open, attachments))
        self._charges = self._quota.spend(self._caller, n_bytes, len(attachments))
        n_passed = 0
        for each in attachments:
            fd = None if each.fd is None else fds[each.fd]
            file = self.media[each.id] = await self._load_one(each, fd)
            n_passed += file.n_bytes * (fd is not None)
            if n_passed > limits.max_passed_bytes:
                raise InvalidRequestError(
                    f"attachments passed by fd have {n_passed} bytes, "
                    f"at most {limits.max_passed_bytes} are allowed"
                )

    def close(self) -> None:
        """Close all files, and release their quota."""
        for file in self.media.values():
            file.close()
        if self._charges is not None:
            self._quota.release(self._charges)
            self._charges = None

    async def _load_one(
        self, attachment: MediaAttachment, fd: int | None
    ) -> AttachmentFile:
        if isinstance(attachment, AudioAttachment) and attachment.open:
            return await self._open_growing(attachment, fd)
        if fd is not None:
            return AttachmentFile.from_fd(attachment, fd)
        return await AttachmentFile.from_base64(attachment)

    async def _open_growing(
        self, attachment: AudioAttachment, fd: int | None
    ) -> GrowingAudioFile:
        limits = self._quota.limits
        audio = GrowingAudioFile.create(
            attachment,
            most_bytes=limits.max_appended_bytes,
            ahead_bytes=limits.max_audio_ahead_bytes,
        )
        try:
            if fd is not None:
                await audio.append_file(fd)
            else:
                await audio.append_text(attachment.bytes or "")
        except BaseException:
            audio.close()
            raise
        return audio


def _is_open(attachment: MediaAttachment) -> bool:
    return isinstance(attachment, AudioAttachment) and attachment.open
