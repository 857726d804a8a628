import io
import json

import pytest

from inferd.cli.transcription import transcriber
from inferd.cli.transcription.output import Destination
from inferd.cli.transcription.recording import Recording
from inferd.cli.transcription.transcriber import IncompleteError, Transcriber
from inferd.client.exchange import ConnectionLostError, RequestFailedError
from inferd.client.media.sound import SoundError
from inferd.client.sync import FrameClient
from inferd.wire.blocks import AudioBlock, BlocksRequest, Message
from inferd.wire.codec import decode_blocks_response
from tests.fakes.hearing import hear, heard, partial, receive, segment
from tests.fakes.listener import failure, listening, says

SECOND = bytes(range(256)) * 250


class Terminal(io.StringIO):
    def isatty(self):
        return True


def make_request(attachment):
    return BlocksRequest(
        id="r",
        messages=[Message("user", [AudioBlock(attachment.id)])],
        attachments=[attachment],
    )


def breaking(*blocks):
    yield from blocks
    raise SoundError("breaks off")


@pytest.fixture
def write_down(short_dir):
    """Have a recording written down where a daemon follows a dialogue."""

    def run(dialogue, blocks, *, is_live=False, kinds=("txt",), has_words=False):
        destination = Destination(kinds, None, has_words=has_words)
        path = short_dir / "infer.v2.sock"
        with listening(path, dialogue), FrameClient(short_dir, timeout_s=90) as client:
            ours = Transcriber(client, make_request, destination)
            ours.transcribe(Recording("a.mp3", blocks), is_live=is_live)

    return run


def hears(came, *frames):
    """Keep what comes, however it does, and answer."""

    def follow(sock):
        request, contents = receive(sock)
        [attachment] = request["attachments"]
        sound = hear(sock)[0] if attachment["open"] else contents[attachment["fd"]]
        came.append((attachment["open"], sound))
        says(*frames, heard())(sock)

    return follow


def test_a_recording_is_handed_over_in_memory_and_printed(write_down, capsys):
    came: list[tuple[bool, bytes]] = []
    answer = [segment("Ask", 0, 900), segment(" not.", 900, 1900)]
    write_down(hears(came, *answer), [SECOND, SECOND])
    assert came == [(False, SECOND * 2)]
    assert capsys.readouterr() == ("Ask\nnot.\n", "")


@pytest.mark.parametrize("n_seconds", [4, 5, 9])
def test_a_long_recording_is_sent_while_it_is_decoded(
    write_down, monkeypatch, n_seconds
):
    monkeypatch.setattr(transcriber, "MEMFD_MAX_S", 3)
    came: list[tuple[bool, bytes]] = []
    write_down(hears(came), iter([SECOND] * n_seconds))
    assert came == [(True, SECOND * n_seconds)]


def test_live_audio_is_sent_from_its_beginning(write_down):
    came: list[tuple[bool, bytes]] = []
    write_down(hears(came), [SECOND, b"", SECOND], is_live=True)
    assert came == [(True, SECOND * 2)]


def test_a_recording_that_breaks_off_is_written_and_an_error(write_down, capsys):
    came: list[tuple[bool, bytes]] = []
    with pytest.raises(SoundError, match="breaks off"):
        write_down(hears(came, segment("Ask", 0, 900)), breaking(SECOND))
    assert came == [(False, SECOND)]
    assert capsys.readouterr().out == "Ask\n"


@pytest.mark.parametrize("reason", ["cancelled", "error"])
def test_an_answer_that_was_cut_short_is_written_and_an_error(
    write_down, capsys, reason
):
    def stop(sock):
        receive(sock)
        says(segment("Ask", 0, 900), heard(stop_reason=reason))(sock)

    with pytest.raises(IncompleteError, match=f"not complete: {reason}"):
        write_down(stop, [SECOND])
    assert capsys.readouterr().out == "Ask\n"


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (says(failure("backend_unavailable")), RequestFailedError),
        (lambda _: None, ConnectionLostError),
    ],
)
def test_what_came_before_a_failure_is_written(write_down, capsys, end, error):
    def fail(sock):
        receive(sock)
        says(segment("Ask", 0, 900))(sock)
        end(sock)

    with pytest.raises(error):
        write_down(fail, [SECOND], kinds=["json"])
    assert json.loads(capsys.readouterr().out)["text"] == "Ask"


def test_a_refusal_prints_nothing(write_down, capsys):
    def refuse(sock):
        receive(sock)
        says(failure("attachment_unsupported"))(sock)

    with pytest.raises(RequestFailedError):
        write_down(refuse, [SECOND], kinds=["vtt"])
    assert capsys.readouterr().out == ""


# --- what a terminal shows --------------------------------------------------------------


@pytest.fixture
def shown(write_down, monkeypatch):
    """What somebody sees who looks on."""

    def run(*arguments, **how):
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", terminal)
            write_down(*arguments, **how)
        return [line for line in terminal.getvalue().split("\r\x1b[2K") if line]

    return run


def test_how_far_it_is_is_shown(shown):
    answer = [
        {"type": "status", "id": "r", "status": "queued", "position": 1},
        segment("Ask", 0, 61_500),
        segment(" not.", 61_500, 63_000),
    ]
    assert shown(hears([], *answer), [SECOND] * 2) == [
        "a.mp3: 00:00:00 transcribed, 00:00:02 decoded",
        "a.mp3: 00:01:01 transcribed, 00:00:02 decoded",
        "a.mp3: 00:01:03 transcribed, 00:00:02 decoded",
    ]


def test_partial_text_is_shown_while_it_may_change(shown, capsys):
    answer = [partial("As", 0, 400), segment("Ask", 0, 900), partial(" not", 900, 990)]
    assert shown(hears([], *answer), [SECOND], is_live=True) == ["As", "not"]
    assert capsys.readouterr().out == "Ask\n"


@pytest.fixture
def screen(write_down, monkeypatch):
    """What is on a terminal that has both stdout and stderr."""

    def run(*arguments, **how):
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", terminal)
            patch.setattr("sys.stdout", terminal)
            write_down(*arguments, **how)
        return terminal.getvalue()

    return run


def test_what_is_printed_is_not_written_behind_what_is_shown(screen):
    answer = [partial("As", 0, 400), segment("Ask", 0, 900)]
    text = screen(hears([], *answer), [SECOND], is_live=True)
    assert text == "\r\x1b[2KAs\r\x1b[2KAsk\n\r\x1b[2K\r\x1b[2K"


def test_what_is_shown_is_cleared_where_the_answer_ends(screen):
    text = screen(hears([], segment("Ask", 0, 900)), [SECOND], kinds=("json",))
    head, _, printed = text.rpartition("\r\x1b[2K")
    assert "transcribed" in head
    assert json.loads(printed)["language"] == "en"


def test_what_is_shown_is_cleared_where_no_answer_ends(write_down, monkeypatch):
    def refuse(sock):
        receive(sock)
        hear(sock)
        says(partial("As", 0, 400), failure("internal"))(sock)

    terminal = Terminal()
    with monkeypatch.context() as patch, pytest.raises(RequestFailedError):
        patch.setattr("sys.stderr", terminal)
        write_down(refuse, [SECOND], is_live=True)
    assert terminal.getvalue() == "\r\x1b[2KAs\r\x1b[2K"


def test_a_transcript_has_the_facts_that_the_daemon_sent(short_dir):
    answer = hears([], segment("Ask", 0, 900))
    destination = Destination(["json"], short_dir, has_words=False)
    path = short_dir / "infer.v2.sock"
    with listening(path, answer), FrameClient(short_dir, timeout_s=90) as client:
        ours = Transcriber(client, make_request, destination)
        ours.transcribe(Recording("a.mp3", [SECOND]), is_live=False)
    written = json.loads((short_dir / "a.json").read_text())
    assert (written["file"], written["language"]) == ("a.mp3", "en")


def test_no_progress_is_shown_over_running_text(screen):
    answer = [segment("Ask", 0, 900), segment(" not.", 900, 1900)]
    assert screen(hears([], *answer), [SECOND], has_words=True) == "Ask not.\n"


def test_what_was_transcribed_before_an_interrupt_is_written(short_dir, monkeypatch):
    """As by ^C while the daemon transcribes."""
    destination = Destination(("txt", "vtt"), short_dir, has_words=False)

    def frames(*_args, **_fields):
        yield ours.pop()
        raise KeyboardInterrupt

    ours = [decode_blocks_response(json.dumps(segment(" one", 0, 1000)).encode())]
    client = FrameClient(short_dir)
    monkeypatch.setattr(client, "converse", frames)
    with pytest.raises(KeyboardInterrupt):
        Transcriber(client, make_request, destination).transcribe(
            Recording("a.mp3", [SECOND]), is_live=False
        )
    assert (short_dir / "a.txt").read_text().strip() == "one"
    assert "one" in (short_dir / "a.vtt").read_text()
