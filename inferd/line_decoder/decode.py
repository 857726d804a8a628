"""Decode a large line into a head for the daemon and sections that it only forwards."""

from msgspec.structs import replace

from inferd.errors import InvalidFrameError, InvalidRequestError, PeerError
from inferd.limits.server import OFFLOAD_LINE_BYTES
from inferd.line_decoder.kind import AnyLineKind, DecodeOutput, client_failure
from inferd.line_decoder.kinds import KINDS, max_result_bytes
from inferd.line_decoder.messages import DecodeResult, DecodeTask, framed
from inferd.wire.codec import decode_aside
from inferd.wire.requests import CancelLine, DescribeRequest


def decode_large_line(task: DecodeTask, line: bytes) -> DecodeOutput:
    """Decode a line as the daemon decodes a short one."""
    kind = KINDS[task.kind]
    try:
        return _with_section_sizes(kind, _decode(kind, task, line))
    except PeerError as error:
        return DecodeOutput(DecodeResult(failure=client_failure(error)))


def _decode(kind: AnyLineKind, task: DecodeTask, line: bytes) -> DecodeOutput:
    match decode_aside(line, takes_appends=kind.takes_appends):
        case None:
            return kind.decode_request(task, line)
        case CancelLine() as cancel:
            return DecodeOutput(DecodeResult(cancel=cancel))
        case DescribeRequest():
            raise InvalidFrameError(
                f"a line of type describe has {len(line)} bytes, "
                f"fewer than {OFFLOAD_LINE_BYTES} are allowed"
            )
        case append:
            text = (append.bytes or "").encode()
            light = append if append.bytes is None else replace(append, bytes="")
            return DecodeOutput(DecodeResult(append=light), [text])


def _with_section_sizes(kind: AnyLineKind, output: DecodeOutput) -> DecodeOutput:
    """Note the lengths of the sections in the result.

    Raises:
        InvalidRequestError: the result would be longer than the daemon decodes at once.
    """
    sizes = [len(section) for section in output.sections]
    result = replace(output.result, sections=sizes)
    n_bytes, most = len(framed(result)), max_result_bytes(kind)
    if n_bytes > most:
        raise InvalidRequestError(
            f"ids of attachments and other short fields have {n_bytes} bytes, "
            f"at most {most} are allowed"
        )
    return DecodeOutput(result, output.sections)
