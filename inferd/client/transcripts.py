"""Transcripts with timestamps, and the file formats for them.

Sources: SubRip as players accept it; WebVTT, W3C Candidate Recommendation 4 April 2019,
section 4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from inferd.wire.responses import BlockFrame, Logprob, TextDelta
from inferd.wire.speech import TranscriptionFacts

CUE_MIN_MS: Final = 1
"""Minimal duration of a cue: players skip cues of zero length."""


class TranscriptSegment(Struct, frozen=True, kw_only=True):
    """Text with its time span: a segment, or a word where words have timestamps."""

    start_ms: int
    """From the beginning of the audio."""
    end_ms: int
    text: str
    """Verbatim: joining the texts of all segments gives the transcript."""
    no_speech: float | UnsetType = UNSET
    """Probability of no speech, 0 to 1, if the model computes it."""
    logprobs: Sequence[Logprob] | UnsetType = UNSET
    """Of its tokens, if the request asks for them."""


class Transcript(Struct, frozen=True, kw_only=True):
    """The segments of one recording."""

    segments: Sequence[TranscriptSegment]
    facts: TranscriptionFacts | None = None
    """Language, duration and the like, if the daemon sent them."""

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(segment.text for segment in self.segments).strip()


def segment_of(frame: object) -> TranscriptSegment | None:
    """Convert a frame of an answer; ``None`` unless it is a text with timestamps."""
    match frame:
        case BlockFrame(
            block=TextDelta(
                delta=text, start_ms=int(start_ms), end_ms=int(end_ms), no_speech=doubt
            ),
            logprobs=logprobs,
        ):
            return TranscriptSegment(
                start_ms=start_ms,
                end_ms=end_ms,
                text=text,
                no_speech=doubt,
                logprobs=logprobs,
            )
        case _:
            return None


# --- files ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TranscriptFormat:
    """A format for transcripts, in parts that can be printed one after another."""

    head: str = ""
    cue: Callable[[int, TranscriptSegment], str] = lambda _number, _segment: ""
    """Renders a segment that has text; gets its number, from 1 on."""
    tail: Callable[[str, Transcript], str] = lambda _name, _transcript: ""
    """Renders the end; gets the name of the recording and the whole transcript."""

    def whole(self, name: str, transcript: Transcript, first: int = 1) -> str:
        """Render a whole transcript; ``first`` is the number of its first segment.

        The name is that of the recording, as Unicode without surrogates.
        """
        segments = filter(has_text, transcript.segments)
        cues = (self.cue(number, each) for number, each in enumerate(segments, first))
        return "".join((self.head, *cues, self.tail(name, transcript)))


def has_text(segment: TranscriptSegment) -> bool:
    """Tell whether a segment has any text but spaces."""
    return bool(segment.text.strip())


def format_time(ms: int, point: str = ".") -> str:
    """Format a time for subtitles: ``01:02:03.004``; hours may have more digits."""
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"


def _srt(number: int, segment: TranscriptSegment) -> str:
    return f"{number}\n{_span(segment, ',')}\n{_line(segment.text)}\n\n"


def _vtt(_number: int, segment: TranscriptSegment) -> str:
    return f"{_span(segment, '.')}\n{_escaped(_line(segment.text))}\n\n"


def _txt(_number: int, segment: TranscriptSegment) -> str:
    return f"{_line(segment.text)}\n"


def _prose(_number: int, segment: TranscriptSegment) -> str:
    return segment.text


def transcript_fields(transcript: Transcript) -> dict[str, object]:
    """Return all that is known of a transcript, for JSON."""
    return {
        "text": transcript.text,
        "segments": transcript.segments,
        **msgspec.to_builtins(transcript.facts or {}),
    }


def _json(name: str, transcript: Transcript) -> str:
    fields = {"file": name, **transcript_fields(transcript)}
    return msgspec.json.encode(fields).decode() + "\n"


def _span(segment: TranscriptSegment, point: str) -> str:
    end_ms = max(segment.end_ms, segment.start_ms + CUE_MIN_MS)
    return f"{format_time(segment.start_ms, point)} --> {format_time(end_ms, point)}"


def _line(text: str) -> str:
    """Collapse white space into single spaces: an empty line would end a cue."""
    return " ".join(text.split())


def _escaped(text: str) -> str:
    """Escape what WebVTT would parse as a tag, an entity or an arrow."""
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, entity)
    return text


FORMATS: Final = {
    "txt": TranscriptFormat(cue=_txt),
    "srt": TranscriptFormat(cue=_srt),
    "vtt": TranscriptFormat(head="WEBVTT\n\n", cue=_vtt),
    "json": TranscriptFormat(tail=_json),
}
"""By file name extension: ``txt`` has a line for each segment, ``srt`` and ``vtt`` have a cue
for each, ``json`` is one line for the whole transcript."""
RUNNING_TEXT: Final = TranscriptFormat(cue=_prose, tail=lambda _name, _transcript: "\n")
"""All text in one line, for segments that are words."""
