"""A recording with its parameters as ``multipart/form-data`` (RFC 7578)."""

import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from inferd.backend.job import TranscribeJob
from inferd.config.kinds.remote import RemoteSettings
from inferd.worker.backend import RefusedError

FILE_NAME: Final = "speech.wav"


class MultipartBody(NamedTuple):
    """A body, and the type that says how it is split."""

    content_type: str
    body: bytes


def write_form(fields: Mapping[str, str], recording: bytes) -> MultipartBody:
    """Write a form with a recording as its file.

    Args:
        fields: by name; the names are ours.
        recording: a WAV file.
    """
    digest = hashlib.sha256(recording)
    for value in fields.values():
        digest.update(value.encode("utf-8", "replace"))
    boundary = digest.hexdigest()  # nobody can send a text that has it
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; '
        f'filename="{FILE_NAME}"\r\nContent-Type: audio/wav\r\n\r\n'
    )
    body = b"".join(
        (
            "".join([*parts, head]).encode("utf-8", "replace"),
            recording,
            f"\r\n--{boundary}--\r\n".encode(),
        )
    )
    return MultipartBody(f"multipart/form-data; boundary={boundary}", body)


def refuse_speech_options(settings: RemoteSettings, job: TranscribeJob) -> None:
    """Refuse what no API of remotes has for a whole recording.

    Raises:
        RefusedError: with the field of the request.
    """
    asked = {
        "max_tokens": job.max_tokens is not None,
        "timestamps word": job.timestamps == "word",
        "speech_logprobs": job.wants_logprobs,
    }
    for field, is_asked in asked.items():
        if is_asked:
            raise RefusedError(f'{field}: backend "{settings.name}" cannot do this')
